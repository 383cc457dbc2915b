package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/agent/keystore"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// forbidCores has this process, and those that it starts, write no core dumps.
func forbidCores() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }

// checkPassphrase returns an error if this agent is to make the first key of a mesh, and could not store it because no passphrase is set.
// Others adopt the passphrase of the leader's keyring.
func checkPassphrase(cfg config.Config, known admission.Credentials, store keyring.Store) error {
	p, ok := store.(*keyring.Passphrase)
	if ok && p.PublicHalf() == "" && (cfg.Dev || !known.Secret.IsZero() || known.Membership != nil && known.Membership.Birth != nil) {
		return keyring.ErrNoPassphrase
	}
	return nil
}

func keyringCommand() *cobra.Command {
	c := &cobra.Command{Use: "keyring", Short: "Manage the keyring of this agent"}
	c.AddCommand(convertCommand(), passphraseCommand(), exportCommand(), importCommand())
	return c
}

func convertCommand() *cobra.Command {
	var to, file string
	c := &cobra.Command{
		Use: "convert", Short: "Change how the keyring's file is protected", Args: cobra.NoArgs,
		Long: "Writes the keyring of a stopped agent again as another kind. The keys stay the same. Set keyring.kind to the new kind then.\n" +
			"For systemd-creds, run it with the credential of the agent's unit: systemd-run does that. For passphrase, it asks for the new\n" +
			"passphrase, or for the present one. For transit and program, set keyring.transit or keyring.program before.\n" +
			"The disk may keep bytes of the old file, although they are overwritten: rotate the keys if others may read them.",
		Example: "  " + asAgent + "convert --to file --config /etc/coopr/agent.yaml\n" +
			"  systemd-run --pipe --wait -p User=coopr -p LoadCredentialEncrypted=coopr-keyring:/etc/credstore.encrypted/coopr-keyring \\\n" +
			"    coopr-agent keyring convert --to systemd-creds --config /etc/coopr/agent.yaml",
	}
	c.Flags().StringVar(&to, "to", "", "the new kind: "+strings.Join(keyring.Kinds(), ", "))
	c.Flags().StringVar(&file, "passphrase-file", "", "file with the passphrase of a keyring of the kind passphrase"+passphraseFrom)
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !slices.Contains(keyring.Kinds(), to) {
			return usageError{fmt.Errorf("--to %q is not a kind of keyring: use %s", to, strings.Join(keyring.Kinds(), ", "))}
		}
		return stopped(load, func(cfg config.Config) error {
			kind, err := keyring.KindOf(cfg.KeyringDir())
			if err != nil {
				return fmt.Errorf("keyring: %w", err)
			}
			from, into := keystore.OfKind(kind, cfg), keystore.OfKind(to, cfg)
			old, locked := from.(*keyring.Passphrase)
			fresh, locks := into.(*keyring.Passphrase)
			switch {
			case locked && locks:
				return errors.New("the keyring is of the kind passphrase already: change the passphrase with coopr-agent keyring passphrase")
			case locked:
				err = unlock(c, old, file, "Passphrase of the keyring")
			case locks:
				err = change(c, fresh, file)
			}
			if err != nil {
				return err
			}
			if err := keyring.Convert(from, into); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "The keyring in %s is of the kind %s now. Set keyring.kind to %s before the agent starts.\n",
				cfg.KeyringDir(), to, to)
			return nil
		})
	}
	return c
}

// stopped calls use with the configuration of an agent that does not run, and has its data directory locked meanwhile.
func stopped(load func() (config.Config, error), use func(config.Config) error) error {
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
	lock, err := identity.LockDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	return use(cfg)
}

// asOwner returns an error if one of an agent's folders belongs to another user than the one who runs this command: root could write there,
// and the agent could not read what root has written.
func asOwner(folders ...string) error {
	for _, folder := range folders {
		info, err := os.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is made by whoever needs it
		}
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) == os.Geteuid() {
			continue
		}
		name := "#" + strconv.Itoa(int(st.Uid))
		if u, err := user.LookupId(name[1:]); err == nil {
			name = u.Username
		}
		return fmt.Errorf("%s belongs to user %s, whose agent could not read what another user writes: run this command as that user "+
			"(runuser -u %[2]s -- coopr-agent ...)", folder, name)
	}
	return nil
}

// unlock reads the passphrase of a keyring, and unlocks it.
func unlock(c *cobra.Command, p *keyring.Passphrase, file, question string) error {
	if _, err := p.Load(); !errors.Is(err, keyring.ErrSealed) {
		return err // it has no keys, or cannot be read
	}
	phrase, err := readPassphrase(c, file, question, false)
	if err != nil {
		return err
	}
	return p.Unlock(phrase)
}

// change reads the new passphrase of a keyring.
func change(c *cobra.Command, p *keyring.Passphrase, file string) error {
	phrase, err := readPassphrase(c, file, "New passphrase of the keyring", true)
	if err != nil {
		return err
	}
	return p.Change(phrase)
}

func passphraseCommand() *cobra.Command {
	var file, fresh string
	c := &cobra.Command{
		Use: "passphrase", Short: "Set or change the passphrase of the keyring", Args: cobra.NoArgs,
		Long: "Sets the passphrase of a stopped agent whose keyring has none yet, or replaces it. It is for keyring.kind passphrase.\n" +
			"The first agent of a mesh needs one before it starts. Other agents take over that of the leader, so that nobody types there, unless\n" +
			"they have got one of their own with this command. Whoever loses the passphrases of all voters has lost the mesh.",
		Example: "  " + asAgent + "passphrase --config /etc/coopr/agent.yaml",
	}
	c.Flags().StringVar(&file, "passphrase-file", "", "file with the present passphrase, if there is one"+passphraseFrom)
	c.Flags().StringVar(&fresh, "new-passphrase-file", "", "file with the new passphrase"+passphraseFrom)
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return stopped(load, func(cfg config.Config) error {
			kind, err := keyring.KindOf(cfg.KeyringDir())
			switch {
			case err != nil && !errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("keyring: %w", err)
			case err == nil && kind != keyring.KindPassphrase:
				return fmt.Errorf("the keyring in %s is of the kind %s: run coopr-agent keyring convert --to passphrase", cfg.KeyringDir(), kind)
			}
			p := keyring.WithPassphrase(cfg.KeyringDir())
			if err := unlock(c, p, file, "Present passphrase of the keyring"); err != nil {
				return err
			}
			set, err := p.Load()
			if err != nil {
				return err
			}
			if err := change(c, p, fresh); err != nil {
				return err
			}
			if err := p.Save(set); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "The keyring in %s has its passphrase.\n", cfg.KeyringDir())
			return nil
		})
	}
	return c
}
