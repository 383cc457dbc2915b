package agent

import (
	"path/filepath"
	"time"

	"github.com/coopr/coopr/agent/executor"
	"github.com/coopr/coopr/agent/objects"
	"github.com/coopr/coopr/agent/objects/act"
	"github.com/coopr/coopr/agent/session"
	"github.com/coopr/coopr/agent/worker"
	pb "github.com/coopr/coopr/rpc/proto"
)

// openWorker creates the worker, the runtime of change objects, and what executes for both.
func (a *Agent) openWorker() (err error) {
	logs := worker.LogsConfig{Age: a.cfg.Retention.Logs, Size: int64(a.cfg.Retention.LogSize), Logger: a.log}
	if a.cfg.DataDir != "" {
		logs.Dir = filepath.Join(a.cfg.DataDir, "logs")
	}
	a.logs = worker.NewLogs(logs)
	if a.journal = a.cfg.Journal; a.journal == nil {
		a.journal = worker.OpenFile(filepath.Join(a.cfg.DataDir, "journal"), a.log)
	}
	tasks := executor.New(executor.Config{Plugins: a.plugins, Resources: a.blobs, Machine: a.cfg.Machine,
		Own: executor.OwnHost(a.cfg.Work()), LeaseEnds: func() time.Time { return a.worker.Until() }})
	connector := session.Connector{ID: a.id, Locator: a.locator, Peers: a.net.peers, Own: a.sessions()}
	a.worker, err = worker.New(worker.Config{
		Hello: a.hello, Connect: connector.Connect, Executor: tasks, Journal: a.journal, Logs: a.logs, Logger: a.log, Registry: a.agents.Receive,
		Sites: func(session string, orders []*pb.SiteOrders) { a.objects.Orders(session, orders) }, Drain: a.cfg.Drain,
		Clock: a.cfg.Clock, Followed: a.desk.Followed, Incidents: session.Unlocks(a.cfg.KeyStore, a.cfg.Name),
	})
	if err != nil {
		return err
	}
	performer := a.cfg.Changes
	switch {
	case performer != nil:
	case a.cfg.DataDir == "":
		performer = objects.Nowhere{}
	default:
		c := act.AgentConfig{DataDir: a.cfg.DataDir, Own: executor.OwnHost(a.cfg.Work()), HostExec: a.rules, Launcher: a.launcher, Logger: a.log,
			Automate: tasks.ExecuteUnplanned}
		if c.PluginSettings, err = executor.AllPluginSettings(a.cfg.Plugins); err != nil {
			return err
		}
		if a.performer, err = act.NewForAgent(c); err != nil {
			return err
		}
		performer = a.performer
	}
	a.objects = objects.New(objects.Config{
		Self: a.id, Session: a.worker.Session, InTouch: a.worker.InTouch, Report: a.worker.ReportObjects,
		Open: objects.Dialer(a.peerAddr, a.net.peers.Client), Performer: performer, Logger: a.log,
	})
	return nil
}

// sessions returns the leader's end of workers' sessions.
func (a *Agent) sessions() session.Server {
	return session.Server{Supervisor: a.supervisor}
}
