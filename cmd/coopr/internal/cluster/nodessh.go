package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// nodeSSHCmd returns the command that logs in to a node with the user's own ssh.
func nodeSSHCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	cmd := &cobra.Command{
		Use: "ssh CLUSTER/NODE [-- SSH-ARG…]", Short: "Log in to a node with ssh", Args: cobra.MinimumNArgs(1),
		Long: "Log in to a node with this machine's ssh, over a connection that goes through an agent that reaches the node. What follows --\n" +
			"is for ssh: its options, and then a command. ssh requires the host key that Coopr knows, uses your own keys, and takes its\n" +
			"settings for the host name COOPR-ID from your own configuration, where ID is the node's.\n\n" +
			"This needs the right \"exec\" on the node, and a user there who accepts your key. The audit log has the connection.",
		Example: "  coopr node ssh shop/1003\n  coopr node ssh shop/1003 -- -l ops -L 8080:localhost:80 -N\n  coopr node ssh shop/1003 -- uptime",
	}
	nodes := completeNode(app, cli.CompleteNodes(app))
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nodes(cmd, given, start)
	}
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		n, err := findNode(ctx, c, args[0])
		if err != nil {
			return err
		}
		ssh, err := exec.LookPath("ssh")
		if err != nil {
			return fmt.Errorf("this machine has no ssh: %w", err)
		}
		self, err := os.Executable()
		if err != nil {
			return err
		}
		dir, err := os.MkdirTemp("", "coopr-ssh-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		options, err := sshOptions(self, filepath.Join(dir, "known_hosts"), &n)
		if err != nil {
			return err
		}
		login := exec.CommandContext(ctx, ssh, append(append(options, sshHost(&n)), args[1:]...)...)
		login.Stdin, login.Stdout, login.Stderr = app.Stdin(), out.Stdout, out.Stderr
		login.Env = append(os.Environ(), connection(cmd)...)
		err = login.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
			return &cli.ExitError{Code: exit.ExitCode()}
		}
		return err
	})
	return cmd
}

// sshHost returns the name by which ssh knows a node. Names of hosts may be those of other machines.
func sshHost(n *model.Node) string { return "coopr-" + n.ID }

// sshOptions returns the options with which ssh reaches a node through the program self. The host keys that the mesh knows are written
// to the file known.
func sshOptions(self, known string, n *model.Node) ([]string, error) {
	if by, _ := n.Results["transport"].(string); by != "" && by != "ssh" {
		return nil, fmt.Errorf("node %s is not reached by ssh but by %q: use coopr node exec", n.ShortName(), by)
	}
	port := 22
	if p, ok := n.Results["ssh_port"]; ok {
		var err error
		if port, err = strconv.Atoi(fmt.Sprint(p)); err != nil {
			return nil, fmt.Errorf("node %s has %q as its ssh_port", n.ShortName(), p)
		}
	}
	// ssh expands what begins with %, and then has a shell run the command.
	quoted := func(s string) string {
		return strings.ReplaceAll("'"+strings.ReplaceAll(s, "'", `'\''`)+"'", "%", "%%")
	}
	options := []string{"-o", "ProxyCommand=" + quoted(self) + " node port-forward --stdio " + quoted(n.ID) + " " + strconv.Itoa(port),
		"-o", "HostKeyAlias=" + sshHost(n)} // without the port, whatever the user's configuration has
	keys, _ := n.Results["ssh_host_keys"].(map[string]any)
	if len(keys) == 0 {
		return options, nil
	}
	var lines strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(&lines, "%s %s %v\n", sshHost(n), kind, keys[kind])
	}
	if err := os.WriteFile(known, []byte(lines.String()), 0o600); err != nil {
		return nil, err
	}
	file := `"` + strings.ReplaceAll(known, "%", "%%") + `"`
	return append(options, "-o", "UserKnownHostsFile="+file, "-o", "GlobalKnownHostsFile=none", "-o", "StrictHostKeyChecking=yes"), nil
}

// connection returns the environment in which another coopr reaches the same mesh as this one, which a user may have named by flags.
func connection(cmd *cobra.Command) (env []string) {
	if f := cmd.Flag("context"); f != nil && f.Changed {
		env = []string{"COOPR_ADDR=", "COOPR_TOKEN=", "COOPR_TENANT=", "COOPR_CACERT="} // as --context counts before these
	}
	for flag, name := range map[string]string{"token": "COOPR_TOKEN", "tenant": "COOPR_TENANT", "ca-cert": "COOPR_CACERT",
		"context": "COOPR_CONTEXT"} {
		if f := cmd.Flag(flag); f != nil && f.Changed {
			env = append(env, name+"="+f.Value.String())
		}
	}
	if f := cmd.Flag("addr"); f != nil && f.Changed {
		addresses, _ := cmd.Flags().GetStringSlice("addr")
		env = append(env, "COOPR_ADDR="+strings.Join(addresses, ","))
	}
	return env
}
