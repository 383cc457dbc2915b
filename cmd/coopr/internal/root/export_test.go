package root

import "github.com/spf13/cobra"

// Command returns the root command with all commands below it.
func Command() *cobra.Command { return newApp(Config{}).command() }
