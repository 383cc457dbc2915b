package config

import (
	"time"
)

// Config is everything an operator can set on an agent. Tags: yaml is the name (and, with its parents, the path); doc
// tells an operator what it does; reload marks what SIGHUP changes at once; flag=- keeps it off the command line.
type Config struct {
	Name    string `yaml:"name" reload:"yes" doc:"Name of this agent for people. Default: the host name."`
	DataDir string `yaml:"data_dir" doc:"Where this agent keeps its state: Raft log, task journal, identity. In dev mode empty is a temporary directory that goes away with the agent."`
	Dev     bool   `yaml:"dev" doc:"Development mode: everything on loopback, no TLS, no token, a mesh of one unless told otherwise."`

	HTTP   HTTP   `yaml:"http" doc:"The HTTP API and the UI."`
	Peer   Peer   `yaml:"peer" doc:"Agent to agent: RPC and Raft on one port, under mutual TLS."`
	Gossip Gossip `yaml:"gossip" doc:"Agent to agent: who is there. UDP and TCP."`

	Join          []string `yaml:"join" reload:"yes" doc:"Agents to find the mesh by, host[:port] of their gossip ports; tried until one answers. Known agents are remembered."`
	JoinTokenFile string   `yaml:"join_token_file" doc:"File with the mesh's join token, mode 0600. Needed to join, once: it is kept in data_dir."`
	JoinToken     Secret   `yaml:"join_token" flag:"-" doc:"The join token itself, where a file is not possible. A configuration file that has it must have mode 0600."`

	BootstrapExpect int    `yaml:"bootstrap_expect" doc:"Start the Raft group when so many eligible agents have met: 1, 3 or 5, the same on all of them. 0: wait to be found by a group. Who joins others starts none alone: 1 goes with no join. In dev mode the default is 1, or 0 where join is given."`
	Eligible        bool   `yaml:"eligible" doc:"This agent may hold the replicated state (be a Raft voter). Which ones do is chosen by the mesh."`
	Zone            string `yaml:"zone" reload:"yes" doc:"Failure zone (rack, room, region), so that voters are spread."`
	Class           string `yaml:"class" reload:"yes" doc:"Class of agent, for tasks that are bound to one."`

	Worker    Worker    `yaml:"worker" doc:"Doing the work."`
	PluginDir string    `yaml:"plugin_dir" doc:"Where plugins are looked for; every file that is executable and named coopr-provider-* or coopr-automator-* is one."`
	Plugins   []Plugin  `yaml:"plugins" flag:"-" doc:"Plugins that need more than lying in plugin_dir."`
	Providers Providers `yaml:"providers" doc:"Settings of the providers that come with Coopr."`

	Log     Log     `yaml:"log" doc:"What is logged, to standard error."`
	Raft    Raft    `yaml:"raft" doc:"The replicated state."`
	Audit   Audit   `yaml:"audit" doc:"How long the log of every change is kept. The same on every eligible agent: whoever leads prunes."`
	Orphans Orphans `yaml:"orphans" doc:"Machines that providers have and that are no node's. The same on every eligible agent: whoever leads looks."`
	Limits  Limits  `yaml:"limits" doc:"What one client can make an agent do."`
}

// HTTP is the API's port.
type HTTP struct {
	Addr              string   `yaml:"addr" doc:"Address of the API. Default: every address; in dev mode 127.0.0.1:55054."`
	TLSCert           string   `yaml:"tls_cert" reload:"yes" doc:"Certificate chain in PEM. Default: a certificate of the mesh's own CA, renewed by itself."`
	TLSKey            string   `yaml:"tls_key" reload:"yes" doc:"Key of tls_cert in PEM."`
	Names             []string `yaml:"names" doc:"Further host names and addresses in the certificate of the mesh's CA, such as a load balancer's."`
	InsecurePlaintext bool     `yaml:"insecure_plaintext" doc:"Serve plain HTTP: for use behind a proxy that does TLS, nowhere else. API tokens pass in the clear."`
}

// Peer is the port for RPC and Raft.
type Peer struct {
	Addr      string `yaml:"addr" doc:"Address of peer RPC and Raft."`
	Advertise string `yaml:"advertise" doc:"Address the others reach it at, ip:port. Default: addr, or this machine's private address."`
}

// Gossip is the port for gossip.
type Gossip struct {
	Addr      string `yaml:"addr" doc:"Address of gossip, ip:port."`
	Advertise string `yaml:"advertise" doc:"Address the others reach it at, ip:port. Default: addr, or this machine's private address."`
	Expect    int    `yaml:"expect" doc:"About how many agents the mesh has or will have, for one that joins for the first time: with hundreds of them it talks less often from the beginning. 0: few. Later it sees for itself."`
}

// Worker is this agent's share of the work.
type Worker struct {
	Slots int `yaml:"slots" doc:"Tasks at a time. A task mostly waits for a cloud or a machine, so this may be many times the cores. 0: this agent does no tasks."`
}

// Plugin is one plugin that is named in the configuration.
type Plugin struct {
	Name     string   `yaml:"name" doc:"The plugin's name, such as provider-openstack."`
	Path     string   `yaml:"path" doc:"Its executable, absolute or in plugin_dir; in dev mode, or without plugin_dir, also beside the agent's own. Default: coopr-<name>."`
	Checksum string   `yaml:"checksum" doc:"sha256:<hex> of the executable; another one is not started."`
	Settings Settings `yaml:"settings" doc:"Passed to the plugin as they are, as JSON in COOPR_PLUGIN_SETTINGS. Never shown: they may hold credentials."`
}

// Providers are settings of built-in providers.
type Providers struct {
	Local LocalProvider `yaml:"local" doc:"The local provider: machines that are directories and processes of this host."`
}

// LocalProvider is the provider whose machines live on the agent's host.
type LocalProvider struct {
	Root string `yaml:"root" doc:"Where its machines live. Default: data_dir/local."`
}

// Log is what is logged.
type Log struct {
	Level  string `yaml:"level" reload:"yes" doc:"debug, info, warn or error."`
	Format string `yaml:"format" doc:"text or json."`
}

// Raft is how the replicated state is kept.
type Raft struct {
	Store             string        `yaml:"store" doc:"Log store: boltdb or wal."`
	Multiplier        int           `yaml:"multiplier" doc:"Stretches election and heartbeat time-outs, 1 to 10. More on slow or far networks: failover takes so much longer."`
	SnapshotInterval  time.Duration `yaml:"snapshot_interval" doc:"How often to see whether a snapshot is due."`
	SnapshotThreshold int           `yaml:"snapshot_threshold" doc:"Log entries since the last snapshot that make one due."`
	TrailingLogs      int           `yaml:"trailing_logs" doc:"Log entries kept behind a snapshot, for followers that were away for a moment."`
}

// Audit bounds the audit log: what comes first counts.
type Audit struct {
	Retention time.Duration `yaml:"retention" doc:"How long records are kept."`
	Records   int           `yaml:"records" doc:"How many records are kept at most; each change of a task is one. An ordinary task has three, of 4 to 10 bytes each."`
	Memory    Size          `yaml:"memory" doc:"How much memory the records may take, on every voter."`
}

// Orphans says how machines that are no node's are looked for.
type Orphans struct {
	Every  time.Duration `yaml:"every" doc:"How often every provider is asked for its machines."`
	Delete bool          `yaml:"delete" doc:"Remove those of clusters on record once they have been seen for the grace. Otherwise they are reported only: coopr provider orphans."`
	Grace  time.Duration `yaml:"grace" doc:"How long a leader has seen one before it removes it."`
}

// Limits protect an agent from its clients.
type Limits struct {
	Body      Size `yaml:"body" doc:"Largest request body of the API."`
	Resource  Size `yaml:"resource" doc:"Largest plugin resource. The same on every eligible agent: whoever leads takes uploads."`
	Resources Size `yaml:"resources" doc:"What all versions of all plugin resources of one tenant may take together."`
	HTTPConns int  `yaml:"http_conns" reload:"yes" doc:"API conns of one client address. 0: no limit."`
	PeerConns int  `yaml:"peer_conns" doc:"Peer conns of one host, for RPC; as many again for Raft. 0: no limit."`
	Watches   int  `yaml:"watches" doc:"Blocking queries and event streams at a time on this agent. 0: no limit."`
}

// Ports of an agent.
const (
	HTTPPort   = "55054"
	PeerPort   = "55055"
	GossipPort = "55056"
)

// Default is the configuration of an agent that was told nothing but whether it is in dev mode.
func Default(dev bool) Config {
	c := Config{
		DataDir:  "/var/lib/coopr",
		HTTP:     HTTP{Addr: "0.0.0.0:" + HTTPPort},
		Peer:     Peer{Addr: "0.0.0.0:" + PeerPort},
		Gossip:   Gossip{Addr: "0.0.0.0:" + GossipPort},
		Eligible: true,
		Worker:   Worker{Slots: 16},

		PluginDir: "/usr/lib/coopr/plugins",
		Log:       Log{Level: "info", Format: "text"},
		Raft: Raft{
			Store: "boltdb", Multiplier: 1,
			SnapshotInterval: 2 * time.Minute, SnapshotThreshold: 8192, TrailingLogs: 10240,
		},
		Audit:   Audit{Retention: 90 * 24 * time.Hour, Records: 5_000_000, Memory: 256 << 20},
		Orphans: Orphans{Every: 10 * time.Minute, Grace: time.Hour},
		Limits:  Limits{Body: 16 << 20, Resource: 64 << 20, Resources: 1 << 30, HTTPConns: 256, PeerConns: 256, Watches: 4096},
	}
	if dev {
		c.Dev = true
		c.DataDir = ""
		c.HTTP.Addr = "127.0.0.1:" + HTTPPort
		c.Peer.Addr = "127.0.0.1:" + PeerPort
		c.Gossip.Addr = "127.0.0.1:" + GossipPort
		c.BootstrapExpect = 1
	}
	return c
}
