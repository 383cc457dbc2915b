package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/coopr/coopr/agent/config"
	"github.com/coopr/coopr/consensus/keyring"
	"github.com/coopr/coopr/rpc/identity"
)

// checkKeyring returns an error if the agent cannot open its keyring. An agent that has not joined yet spends no token then.
func checkKeyring(cfg config.Config) error {
	_, err := keyring.Open(keyring.Of(cfg.Keyring.Kind, cfg.KeyringDir(), os.Getenv("CREDENTIALS_DIRECTORY")))
	return err
}

// forbidCores has this process, and those that it starts, write no core dumps.
func forbidCores() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }

func keyringCommand() *cobra.Command {
	c := &cobra.Command{Use: "keyring", Short: "Manage the keyring of this agent"}
	c.AddCommand(convertCommand(), exportCommand(), importCommand())
	return c
}

func convertCommand() *cobra.Command {
	var to string
	c := &cobra.Command{
		Use: "convert", Short: "Change how the keyring's file is protected", Args: cobra.NoArgs,
		Long: "Writes the keyring of a stopped agent again as another kind. The keys stay the same. Set keyring.kind to the new kind then.\n" +
			"For systemd-creds, run it with the credential of the agent's unit: systemd-run does that.\n" +
			"The disk may keep the bytes of the old file: rotate the keys if others may read them.",
		Example: "  coopr-agent keyring convert --to file --config /etc/coopr/agent.yaml\n" +
			"  systemd-run --pipe --wait -p User=coopr -p LoadCredentialEncrypted=coopr-keyring:/etc/credstore.encrypted/coopr-keyring \\\n" +
			"    coopr-agent keyring convert --to systemd-creds --config /etc/coopr/agent.yaml",
	}
	c.Flags().StringVar(&to, "to", "", "the new kind: "+strings.Join(keyring.Kinds(), " or "))
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if !slices.Contains(keyring.Kinds(), to) {
			return usageError{fmt.Errorf("--to %q is not a kind of keyring: use %s", to, strings.Join(keyring.Kinds(), " or "))}
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		if cfg.DataDir == "" {
			return usageError{errors.New("set data_dir, or --data-dir")}
		}
		lock, err := identity.LockDir(cfg.DataDir)
		if err != nil {
			return err
		}
		defer lock.Release()
		if err := keyring.Convert(cfg.KeyringDir(), to, os.Getenv("CREDENTIALS_DIRECTORY")); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "The keyring in %s is of the kind %s now. Set keyring.kind to %s before the agent starts.\n",
			cfg.KeyringDir(), to, to)
		return nil
	}
	return c
}
