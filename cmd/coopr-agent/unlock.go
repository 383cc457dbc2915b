package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/agent/keystore"
)

func unlockCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "unlock", Short: "Give the passphrase of its keyring to the sealed agent of this machine", Args: cobra.NoArgs,
		Long: "An agent whose keyring is of the kind passphrase is sealed after each start: it neither votes nor serves until it gets the\n" +
			"passphrase. It takes that from a socket in its data directory, which only the agent's user and root can open. Run this command as\n" +
			"one of them on the agent's machine.",
		Example: "  runuser -u coopr -- coopr-agent unlock --config /etc/coopr/agent.yaml\n" +
			"  pass show coopr | ssh root@voter-1 coopr-agent unlock --data-dir /var/lib/coopr",
	}
	c.Flags().StringVar(&file, "passphrase-file", "", "file with the passphrase"+passphraseFrom)
	load := settings(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg, err := load()
		if err != nil {
			return err
		}
		if cfg.DataDir == "" {
			return usageError{errors.New("set data_dir, or --data-dir")}
		}
		if err := keystore.Waits(cfg.DataDir); err != nil { // before anybody types
			return err
		}
		phrase, err := readPassphrase(c, file, "Passphrase of the keyring", false)
		if err != nil {
			return err
		}
		if err := keystore.Unlock(c.Context(), cfg.DataDir, phrase); err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), "The keyring is open, and the agent starts.")
		return nil
	}
	return c
}
