package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/coopr/coopr/rpc/client"

	"github.com/coopr/coopr/cmd/coopr/internal/cli"
)

// nodeForwardCmd returns the command that forwards a local port to a node.
func nodeForwardCmd(app cli.App) *cobra.Command {
	out := app.Printer()
	var stdio bool
	cmd := &cobra.Command{
		Use: "port-forward CLUSTER/NODE [LOCAL:]REMOTE", Short: "Forward a local port to a TCP port of a node",
		Args: cli.Args("CLUSTER/NODE", "REMOTE"),
		Long: "Listen on a port of this machine's loopback interface, and forward each connection to a TCP port of a node, through an agent\n" +
			"that reaches it. Without LOCAL, a free port is taken. Ctrl-C ends all connections.\n\n" +
			"This needs the right \"exec\" on the node. The audit log has each connection.",
		Example: "  coopr node port-forward shop/1003 8080:80\n  ssh -o ProxyCommand='coopr node port-forward --stdio shop/1003 22' shop-1003",
	}
	nodes := completeNode(app, cli.CompleteNodes(app))
	cmd.ValidArgsFunction = func(cmd *cobra.Command, given []string, start string) ([]string, cobra.ShellCompDirective) {
		if len(given) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return nodes(cmd, given, start)
	}
	cmd.Flags().BoolVar(&stdio, "stdio", false, "forward standard input and output instead, as a ProxyCommand of ssh does")
	cmd.RunE = cli.Run(app, func(ctx context.Context, c *client.Client, args []string) error {
		local, remote, ok := strings.Cut(args[1], ":")
		if !ok {
			local, remote = "0", args[1]
		}
		port, err := strconv.ParseUint(remote, 10, 16)
		at, err2 := strconv.ParseUint(local, 10, 16)
		if err != nil || err2 != nil || port == 0 || stdio && ok {
			return cli.Usage(cmd, "ports are 1 to 65535, as 80 or 8080:80; with --stdio there is no local one")
		}
		n, err := findNode(ctx, c, args[0])
		if err != nil {
			return err
		}
		if stdio {
			return c.Forward(ctx, n.ID, int(port), os.Stdin, out.Stdout)
		}
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.FormatUint(at, 10)))
		if err != nil {
			return err
		}
		if err := out.Output(out.Stdout, fmt.Sprintf("Forwarding %s to port %d of %s\n", l.Addr(), port, args[0])); err != nil {
			l.Close()
			return err
		}
		return serveForward(ctx, l, func(conn net.Conn) {
			err := c.Forward(ctx, n.ID, int(port), conn, conn)
			if err != nil && !errors.Is(err, client.ErrForwardLeft) && ctx.Err() == nil {
				fmt.Fprintf(out.Stderr, "connection from %s: %v\n", conn.RemoteAddr(), err)
			}
		})
	})
	return cmd
}

// serveForward calls handle with each connection that the listener accepts, until ctx ends, and closes the connection afterwards.
func serveForward(ctx context.Context, l net.Listener, handle func(net.Conn)) error {
	var open sync.WaitGroup
	defer open.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		open.Go(func() {
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			defer conn.Close()
			handle(conn)
		})
	}
}
