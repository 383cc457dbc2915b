package agent

import (
	"github.com/coopr/coopr/agent/admission"
	"github.com/coopr/coopr/agent/blobs"
	"github.com/coopr/coopr/agent/bundle"
	"github.com/coopr/coopr/agent/executor"
	"github.com/coopr/coopr/agent/member"
	"github.com/coopr/coopr/agent/metrics"
	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/agent/session"
	"github.com/coopr/coopr/agent/worker"
	"github.com/coopr/coopr/rpc/peer"
	pb "github.com/coopr/coopr/rpc/proto"
	"github.com/coopr/coopr/rpc/server"
	"github.com/coopr/coopr/rpc/server/rest"
)

// openServers creates the servers of the API and of other agents.
func (a *Agent) openServers() (err error) {
	services := a.services()
	a.handler, err = server.New(server.Config{Services: services, Logger: a.log, Registry: a.metrics, Name: a.cfg.Name, Dev: a.cfg.Dev,
		MaxBody: int64(a.cfg.Limits.Body), MaxWatches: a.cfg.Limits.Watches, Root: a.cfg.Root, Pages: len(a.cfg.IdentityProviders) > 0,
		Issuer: a.cfg.Issuer,
		Bounds: rest.Bounds{Tenants: true, Bodies: int64(a.cfg.Limits.Bodies), Strangers: a.cfg.Limits.Strangers}})
	if err != nil {
		return err
	}
	a.grpc = peer.NewServer(&peerServer{
		memberServer:  member.Server{Supervisor: a.supervisor, Build: a.cfg.Build},
		sessionServer: a.sessions(),
		blobServer:    blobs.Server{Cache: a.blobs},
		machineServer: executor.Server{Plugins: a.plugins, Resources: a.blobs, Machine: a.cfg.Machine},
		logServer:     worker.Server{Worker: a.worker, Logs: a.logs},
		objectServer:  objects.Server{Runtime: a.objects},
		deskServer:    admission.Server{Desk: a.desk},
		bundleServer:  bundle.Server{Agent: services.Inspector.(*bundle.Inspector).Self},
	}, a.identity == nil)
	return metrics.Register(a.metrics, metrics.Sources{Build: a.cfg.Build, Slots: a.cfg.Worker.Slots, Supervisor: a.supervisor,
		Quorum: services.Mesh, Worker: a.worker, Plugins: a.host, Settings: a.settings.Load})
}

// peerServer serves other agents. Each of its parts serves one concern and lives with the code that it exposes.
type peerServer struct {
	memberServer
	sessionServer
	blobServer
	machineServer
	logServer
	objectServer
	deskServer
	bundleServer
	unimplemented
}

var _ pb.PeerServer = (*peerServer)(nil)

// The parts of a peerServer. The names of embedded fields must differ.
type (
	memberServer  = member.Server
	sessionServer = session.Server
	blobServer    = blobs.Server
	machineServer = executor.Server
	logServer     = worker.Server
	objectServer  = objects.Server
	deskServer    = admission.Server
	bundleServer  = bundle.Server
	// unimplemented has the methods of a newer protocol. It is embedded one level deeper, so that the other parts take precedence.
	unimplemented struct{ pb.UnimplementedPeerServer }
)
