package sdk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk/wire"
	"github.com/coopr/coopr/rpc/proto"
)

// goneGrace is how long tasks have to end after the agent is gone.
const goneGrace = 2 * time.Second

// Serve runs the plugin process until its agent closes it or is gone. It is the last call of main.
// If the program was called as "PROGRAM describe", Serve prints the descriptors for people instead.
func Serve(p Plugin) {
	if len(os.Args) == 2 && os.Args[1] == "describe" {
		if err := printDescriptors(os.Stdout, p); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	process := &lifetime{Context: ctx}
	watchParent(process, gone)
	plugins := plugin.PluginSet{}
	if p.Provider != nil {
		plugins["provider"] = &served{register: func(s *grpc.Server) {
			proto.RegisterProviderServer(s, &providerServer{impl: p.Provider, process: process})
		}}
	}
	if p.Automator != nil {
		plugins["automator"] = &served{register: func(s *grpc.Server) {
			proto.RegisterAutomatorServer(s, &automatorServer{impl: p.Automator, process: process})
		}}
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: wire.Handshake(),
		Plugins:         plugins,
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return plugin.DefaultGRPCServer(append(opts,
				grpc.MaxRecvMsgSize(wire.MaxMessage), grpc.MaxSendMsgSize(wire.MaxMessage),
				grpc.InitialWindowSize(wire.Window), grpc.InitialConnWindowSize(wire.Window)))
		},
		// The host reads these lines from standard error and logs them.
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr, JSONFormat: true}),
	})
}

// lifetime ends when the agent is gone; sessions are the streams being served.
type lifetime struct {
	context.Context
	sessions sync.WaitGroup
}

// served registers one gRPC service with the server of go-plugin.
type served struct {
	plugin.NetRPCUnsupportedPlugin
	register func(*grpc.Server)
}

func (p *served) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	p.register(s)
	return nil
}

func (p *served) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("a plugin cannot be the client of its own connection: only the agent can")
}

// watchParent ends the process when its agent is gone, even if the agent was killed. Each of three
// signs is enough: standard input ends, whose other end only the agent holds; the parent changes;
// the kernel sends the signal that the host requested for the parent's death. Tasks are cancelled
// first, so that they can end their child processes.
func watchParent(process *lifetime, gone func()) {
	leave := func() {
		gone()
		time.AfterFunc(goneGrace, func() { os.Exit(3) })
		process.sessions.Wait()
		os.Exit(3)
	}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	parent := os.Getppid()
	input := make(chan struct{})
	go func() {
		defer close(input)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	go func() {
		poll := time.NewTicker(time.Second)
		defer poll.Stop()
		for {
			select {
			case <-input:
			case <-terminated:
			case <-poll.C:
				if os.Getppid() == parent {
					continue
				}
			}
			leave()
			return
		}
	}()
}

// Descriptors are the types that one plugin binary serves.
type Descriptors struct {
	Provider  *model.PluginType `json:"provider,omitempty"`
	Automator *model.PluginType `json:"automator,omitempty"`
}

func printDescriptors(w io.Writer, p Plugin) error {
	var d Descriptors
	if p.Provider != nil {
		t := p.Provider.Describe()
		d.Provider = &t
	}
	if p.Automator != nil {
		t := p.Automator.Describe()
		d.Automator = &t
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(d)
}
