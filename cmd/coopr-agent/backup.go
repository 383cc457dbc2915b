package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/keystore"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/internal/durable"
	"github.com/coopr/coopr/rpc/identity"
)

// asAgent is how the commands of the keyring are run on an installed host.
const asAgent = "runuser -u coopr -- coopr-agent keyring "

// openKeyring returns the store of an agent's keyring, and unlocks one that has a passphrase, also before it has keys: what is written to
// it can be read again then. The file of the passphrase is "" for the terminal.
func openKeyring(c *cobra.Command, cfg config.Config, file string) (keyring.Store, error) {
	store := keystore.Of(cfg)
	p, ok := store.(*keyring.Passphrase)
	if !ok {
		return store, nil
	}
	if _, err := p.Load(); err != nil && !errors.Is(err, keyring.ErrSealed) || p.PublicHalf() == "" {
		return store, err // it cannot be read, or has no passphrase yet
	}
	phrase, err := readPassphrase(c, file, "Passphrase of the keyring", false)
	if err != nil {
		return store, err
	}
	return store, p.Unlock(phrase)
}

func exportCommand() *cobra.Command {
	var to, passphrase, own string
	var recipients []string
	c := &cobra.Command{
		Use: "export", Short: "Write an encrypted backup of the keyring", Args: cobra.NoArgs,
		Long: "Writes the keys of the mesh to a new file, encrypted with age for one or more recipients or with a passphrase. It is the other\n" +
			"half of a backup: a snapshot is worth nothing without it. Keep it elsewhere than the snapshots. Run it on the host of a voter, as\n" +
			"the agent's user; the agent may run. Export again after each rotation of the mesh key.\n\n" +
			"age-keygen makes an identity and its recipient. For the kind systemd-creds, run it with the credential of the agent's unit.",
		Example: "  " + asAgent + "export --config /etc/coopr/agent.yaml \\\n    --to keyring-$(date +%F).age --recipient age1...\n" +
			"  " + asAgent + "export --config /etc/coopr/agent.yaml \\\n    --to keyring.age --passphrase-file passphrase",
	}
	c.Flags().StringVar(&to, "to", "", "the new file")
	c.Flags().StringSliceVar(&recipients, "recipient", nil, "an age recipient, age1... (repeatable)")
	c.Flags().StringVar(&passphrase, "passphrase-file", "", "file with a passphrase, in place of recipients")
	c.Flags().StringVar(&own, "keyring-passphrase-file", "", "file with the passphrase of a keyring of that kind"+passphraseFrom)
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if to == "" {
			return usageError{errors.New("name the new file with --to")}
		}
		who, err := recipientsOf(recipients, passphrase)
		if err != nil {
			return err
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		if cfg.DataDir == "" {
			return usageError{errors.New("set data_dir, or --data-dir")}
		}
		if err := asOwner(cfg.DataDir, cfg.KeyringDir()); err != nil {
			return err
		}
		store, err := openKeyring(c, cfg, own)
		if err != nil {
			return err
		}
		set, err := store.Load()
		if err != nil {
			return err
		}
		active, ok := set.ActiveKey()
		if !ok {
			return fmt.Errorf("the keyring in %s has no keys: export that of a voter", cfg.KeyringDir())
		}
		switch _, err := os.Lstat(to); {
		case err == nil:
			return fmt.Errorf("%s is there already: choose a new name", to)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		var out bytes.Buffer
		if err := keyring.Export(&out, set, who...); err != nil {
			return err
		}
		if err := durable.WriteFile(to, out.Bytes()); err != nil {
			return err
		}
		err = keyring.NoteExport(cfg.KeyringDir(), keyring.Exported{Number: active.Number, Print: active.Print(), At: time.Now()})
		if err != nil {
			return fmt.Errorf("%s is written, but the mesh will not know of it: %w", to, err)
		}
		fmt.Fprintf(c.OutOrStdout(), "%s has the keyring, whose active key is key %d. Keep it elsewhere than the snapshots.\n", to, active.Number)
		return nil
	}
	return c
}

// recipientsOf returns those who can read a backup.
func recipientsOf(list []string, passphraseFile string) ([]age.Recipient, error) {
	switch {
	case len(list) == 0 && passphraseFile == "":
		return nil, usageError{errors.New("say who can read the backup: --recipient or --passphrase-file")}
	case len(list) > 0 && passphraseFile != "":
		return nil, usageError{errors.New("give --recipient or --passphrase-file, not both")}
	case passphraseFile != "":
		text, err := passphraseIn(passphraseFile)
		if err != nil {
			return nil, err
		}
		r, err := age.NewScryptRecipient(text)
		return []age.Recipient{r}, err
	}
	out, err := age.ParseRecipients(strings.NewReader(strings.Join(list, "\n")))
	if err != nil {
		return nil, usageError{fmt.Errorf("--recipient: it is no recipient of age, which begins with age1: %w", err)}
	}
	return out, nil
}

// passphraseIn returns the first line of a file.
func passphraseIn(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, rest, _ := strings.Cut(string(data), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" || strings.TrimSpace(rest) != "" {
		return "", fmt.Errorf("%s has to have one line, the passphrase", file)
	}
	return line, nil
}

func importCommand() *cobra.Command {
	var identityFile, passphrase, own string
	var force bool
	c := &cobra.Command{
		Use: "import FILE", Short: "Put the keys of a backup into the keyring of a stopped agent",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("give one FILE")}
			}
			return nil
		},
		Long: "Puts the keys of a backup that \"coopr-agent keyring export\" wrote into the keyring of a stopped agent, as it is configured.\n" +
			"It is for the first agent of a new mesh, before its first start, for an agent whose keyring was lost, and for the restore of a\n" +
			"snapshot from before a rotation: the keys of the keyring stay. Nothing is written before the whole backup is checked. Run it as\n" +
			"the agent's user.",
		Example: "  " + asAgent + "import keyring.age --config /etc/coopr/agent.yaml --identity key.txt\n" +
			"  " + asAgent + "import keyring.age --config /etc/coopr/agent.yaml --passphrase-file passphrase",
	}
	c.Flags().StringVar(&identityFile, "identity", "", "file with the age identity of a recipient")
	c.Flags().StringVar(&passphrase, "passphrase-file", "", "file with the passphrase, in place of an identity")
	c.Flags().StringVar(&own, "keyring-passphrase-file", "", "file with the passphrase of a keyring of that kind"+passphraseFrom)
	c.Flags().BoolVar(&force, "force", false, "replace a keyring that has keys of another mesh, which are lost then")
	load := settings(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		who, err := identitiesOf(identityFile, passphrase)
		if err != nil {
			return err
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		if cfg.DataDir == "" {
			return usageError{errors.New("set data_dir, or --data-dir")}
		}
		f, err := os.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		set, err := keyring.Import(f, who...)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if err := asOwner(cfg.DataDir, cfg.KeyringDir()); err != nil {
			return err
		}
		if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
			return err
		}
		lock, err := identity.LockDir(cfg.DataDir)
		if err != nil {
			return err
		}
		defer lock.Release()
		store, err := openKeyring(c, cfg, own)
		if err != nil {
			return err
		}
		have, err := store.Load()
		switch {
		case err != nil && !force:
			return err
		case !force:
			joined, ok := have.Join(set)
			if !ok {
				return fmt.Errorf("the keyring in %s has keys of another mesh than %s: add --force if nothing needs them any more",
					cfg.KeyringDir(), filepath.Base(args[0]))
			}
			set = joined
		}
		if err := store.Save(set); err != nil {
			return err
		}
		if again, err := store.Load(); err != nil || !again.Contains(set) {
			return errors.Join(fmt.Errorf("the keyring in %s is not as it was written", cfg.KeyringDir()), err)
		}
		fmt.Fprintf(c.OutOrStdout(), "The keyring in %s has the keys of %s. Its active key is key %d.\n", cfg.KeyringDir(), args[0], set.Active)
		return nil
	}
	return c
}

// identitiesOf returns those that can read a backup.
func identitiesOf(file, passphraseFile string) ([]age.Identity, error) {
	switch {
	case file == "" && passphraseFile == "", file != "" && passphraseFile != "":
		return nil, usageError{errors.New("give --identity or --passphrase-file")}
	case passphraseFile != "":
		text, err := passphraseIn(passphraseFile)
		if err != nil {
			return nil, err
		}
		i, err := age.NewScryptIdentity(text)
		return []age.Identity{i}, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out, err := age.ParseIdentities(f)
	if err != nil {
		// The error of age may have a part of the identity.
		return nil, fmt.Errorf("%s has no identity of age, which begins with AGE-SECRET-KEY-", file)
	}
	return out, nil
}
