package config

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coopr/coopr/engine/hostexec"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/ownhost"
)

// Config has every setting of an agent. The tag yaml is a setting's name (and, with its parents, its path), doc its
// documentation for operators; reload marks settings that SIGHUP changes at once, and flag:"-" those without a flag.
type Config struct {
	Name    string  `yaml:"name" reload:"yes" doc:"Name of this agent for people. Default: the host name."`
	DataDir string  `yaml:"data_dir" doc:"Where this agent keeps its state: Raft log, task journal, identity. In dev mode, an empty value means a temporary directory that is removed when the agent stops."`
	WorkDir string  `yaml:"work_dir" doc:"Folder of what plugins use: their own folders, the resources of tasks, local nodes. It must not be in data_dir. Default: data_dir with -work appended."`
	Keyring Keyring `yaml:"keyring" doc:"The mesh's keys, with which passwords are encrypted in the state. Voters have them."`
	Dev     bool    `yaml:"dev" doc:"Development mode: everything is on loopback, without TLS and join token. Unless configured otherwise, the mesh has one agent."`

	HTTP   HTTP   `yaml:"http" doc:"The HTTP API and the UI."`
	Peer   Peer   `yaml:"peer" doc:"Agent to agent: RPC and Raft on one port, under mutual TLS."`
	Gossip Gossip `yaml:"gossip" doc:"Agent to agent: discovery and failure detection, by UDP and TCP."`

	Join          []string `yaml:"join" reload:"yes" doc:"Agents through which this agent joins the mesh: host[:port] of their gossip ports, tried until one answers. Agents met once are remembered. It is not needed with a join token."`
	JoinTokenFile string   `yaml:"join_token_file" doc:"File with a join token, mode 0600, owned by the agent's user. It is used once, and may be removed then."`
	JoinToken     Secret   `yaml:"join_token" flag:"-" doc:"The join token itself, if a file is not possible. A configuration file that has it must have mode 0600."`

	BootstrapExpect int    `yaml:"bootstrap_expect" doc:"Number of eligible agents that start the Raft group when they have met: 1, 3 or 5, the same on all of them. 0: wait until a group adds this agent. 1 cannot be combined with join, as an agent that joins others starts no group alone. In dev mode the default is 1, or 0 if join is set. It is for dev mode and older meshes only; an agent with an identity ignores it."`
	Eligible        bool   `yaml:"eligible" doc:"Whether this agent may hold the replicated state (be a Raft voter). The mesh chooses its voters among eligible agents. A worker never is eligible."`
	Zone            string `yaml:"zone" reload:"yes" doc:"Failure zone (rack, room, region). Voters are spread over zones."`
	Class           string `yaml:"class" reload:"yes" doc:"Class of this agent, for tasks that require one."`

	HostExec     bool     `yaml:"host_exec" doc:"Whether this machine may run what tenants ask for: the provider local, native runs, change objects with a host agent:NAME, Docker and libvirt by unix socket, and hosts that are this machine. The caller needs the right host:exec, too. In dev mode the default is true."`
	Interpreters []string `yaml:"interpreters" doc:"Automators that interpret a tenant's documents on the agents' machines and that the tenant may use without host:exec: TENANT/AUTOMATOR, such as acme/ansible; * means all tenants. It must be the same on every agent."`

	Worker    Worker    `yaml:"worker" doc:"The tasks that this agent carries out."`
	PluginDir string    `yaml:"plugin_dir" doc:"Directory of plugins. Every executable file named coopr-provider-* or coopr-automator-* is a plugin."`
	Plugins   []Plugin  `yaml:"plugins" flag:"-" doc:"Plugins with settings of their own, with a checksum, or outside plugin_dir."`
	Providers Providers `yaml:"providers" doc:"Settings of the providers that come with Coopr."`
	Isolation Isolation `yaml:"isolation" doc:"What keeps plugins away from this agent and from each other."`

	Issuer string `yaml:"issuer" eg:"https://coopr.example.com" doc:"The mesh's address as an issuer of tokens with which tasks identify themselves elsewhere. With it the mesh makes keys for them, and publishes these at /v1/jwks, where /.well-known/openid-configuration has receivers look for them. It must be the same on every eligible agent, as the leader makes keys and tokens. Default: none."`

	Log       Log       `yaml:"log" doc:"The log, which is written to standard error."`
	Raft      Raft      `yaml:"raft" doc:"The replicated state."`
	Retention Retention `yaml:"retention" doc:"How long records of what has ended are kept. The settings of the state must be the same on every eligible agent, as the leader prunes it; logs and log_size are this agent's own."`
	Audit     Audit     `yaml:"audit" doc:"Limits of the audit log, and places to which its records are sent. They must be the same on every eligible agent, as the leader prunes and sends."`
	Orphans   Orphans   `yaml:"orphans" doc:"Machines of providers that belong to no node. The settings must be the same on every eligible agent, as the leader searches."`
	Limits    Limits    `yaml:"limits" doc:"Limits of what clients can make this agent do."`

	Directories       []Directory        `yaml:"directories" flag:"-" doc:"LDAP directories of people who may log in. They must be the same on every eligible agent, as the leader asks them."`
	IdentityProviders []IdentityProvider `yaml:"identity_providers" flag:"-" doc:"Providers of OpenID Connect where people log in. They must be the same on every eligible agent, as the leader asks them."`
}

// Work returns the folder of what plugins use, or "" without a data directory.
func (c Config) Work() string {
	if c.WorkDir == "" && c.DataDir != "" {
		return absolute(c.DataDir) + "-work"
	}
	return absolute(c.WorkDir)
}

// KeyringDir returns the folder of the mesh's keys, or "" without a data directory.
func (c Config) KeyringDir() string {
	if c.Keyring.Dir == "" && c.DataDir != "" {
		return absolute(c.DataDir) + "-keyring"
	}
	return absolute(c.Keyring.Dir)
}

// absolute returns a path from the root, since what an agent starts is in another folder. "" stays as it is.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Secrets returns the files and folders of the agent that no plugin may read.
func (c Config) Secrets() (out []string) {
	paths := []string{c.DataDir, c.KeyringDir(), c.Keyring.Transit.TokenFile, c.JoinTokenFile, c.HTTP.TLSKey}
	for _, d := range c.Directories {
		paths = append(paths, d.BindPasswordFile)
	}
	for _, p := range c.IdentityProviders {
		paths = append(paths, p.ClientSecretFile)
	}
	for _, s := range c.Audit.Sinks {
		paths = append(paths, s.Path, s.HeaderFile, s.SignatureKeyFile, s.PasswordFile)
	}
	for _, path := range paths {
		if path != "" {
			out = append(out, absolute(path))
		}
	}
	return out
}

// Rules returns the rules about what runs on control hosts.
func (c Config) Rules() hostexec.Rules {
	return hostexec.Rules{HostExec: c.HostExec, Interpreters: c.Interpreters, Own: ownHost}
}

// ownHost returns the addresses and the name of this machine. What cannot be read is left out; loopback is always recognized.
func ownHost() (all []string) {
	addresses, _ := ownhost.Addresses()
	for _, a := range addresses {
		all = append(all, a.String())
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		all = append(all, strings.ToLower(name))
	}
	return all
}

// Keyring has the settings of the keyring.
type Keyring struct {
	Kind    string         `yaml:"kind" doc:"How the keyring's file is protected. file: not at all. systemd-creds: the unit's credential coopr-keyring encrypts it. passphrase: a passphrase, which somebody gives after each start (coopr-agent unlock). transit: a server with Vault's API. program: a program of yours. Default: file."`
	Dir     string         `yaml:"dir" doc:"Folder of the mesh's keys, mode 0700. Whoever reads it can decrypt the state. It must not be in data_dir, so that a copy of that is worth nothing without it. Default: data_dir with -keyring appended."`
	Transit Transit        `yaml:"transit" doc:"The server that decrypts a keyring of the kind transit when the agent starts: its secrets engine transit encrypts a random key, which encrypts the keyring's file."`
	Program KeyringProgram `yaml:"program" doc:"The program that decrypts a keyring of the kind program when the agent starts, such as one that asks the key service of a cloud (docs/operations.md)."`
}

// KeyringProgram has the settings of a program that encrypts and decrypts for a keyring.
type KeyringProgram struct {
	Path string   `yaml:"path" doc:"The program, an absolute path. It and its folder belong to root or the agent's user, and nobody else may change them."`
	Args []string `yaml:"args" doc:"Arguments before the last one, which is wrap or unwrap. Everybody on the machine can read them: put no secrets into them."`
	Env  []string `yaml:"env" doc:"Names of variables of the agent's environment that the program gets besides PATH, HOME and LANG."`
}

// Transit has the settings of a server that encrypts and decrypts for a keyring.
type Transit struct {
	Address   string `yaml:"address" doc:"URL of the server, with https. Plain http is allowed on loopback. Redirects are not followed."`
	Mount     string `yaml:"mount" doc:"Path of the secrets engine. Default: transit."`
	Key       string `yaml:"key" doc:"Name of the engine's key."`
	TokenFile string `yaml:"token_file" doc:"File with a token that may encrypt and decrypt with the key, mode 0600, owned by the agent's user. It is read for each request."`
	CAFile    string `yaml:"ca_file" doc:"Certificates of the server's CA, in PEM. Default: those of the system."`
}

// MountPath returns the path of the secrets engine.
func (t Transit) MountPath() string {
	if t.Mount == "" {
		return "transit"
	}
	return t.Mount
}

// HTTP has the settings of the API's port.
type HTTP struct {
	Addr              string   `yaml:"addr" doc:"Address of the API. Default: all addresses; in dev mode 127.0.0.1:55054."`
	TLSCert           string   `yaml:"tls_cert" reload:"yes" doc:"Certificate chain in PEM. Default: a certificate of the mesh's own CA, which is renewed automatically."`
	TLSKey            string   `yaml:"tls_key" reload:"yes" doc:"Private key of tls_cert, in PEM."`
	Names             []string `yaml:"names" doc:"Further host names and addresses in the certificate of the mesh's CA, such as a load balancer's."`
	InsecurePlaintext bool     `yaml:"insecure_plaintext" doc:"Serve plain HTTP. Use it only behind a proxy that terminates TLS: API tokens are sent in the clear."`
}

// Peer has the settings of the port of peer RPC and Raft.
type Peer struct {
	Addr      string `yaml:"addr" doc:"Address of peer RPC and Raft."`
	Advertise string `yaml:"advertise" doc:"Address at which other agents reach this port, ip:port. Default: addr, or this machine's private address."`
}

// Gossip has the settings of the gossip port.
type Gossip struct {
	Addr      string `yaml:"addr" doc:"Address of gossip, ip:port."`
	Advertise string `yaml:"advertise" doc:"Address at which other agents reach this port, ip:port. Default: addr, or this machine's private address."`
	Expect    int    `yaml:"expect" doc:"Approximate number of agents of the mesh, used when this agent joins for the first time: in a mesh of hundreds it starts with longer gossip intervals. 0: few. Later the intervals follow the actual number."`
}

// Worker has the settings of the worker.
type Worker struct {
	Slots int `yaml:"slots" doc:"Number of concurrent tasks. A task mostly waits for a cloud or a machine, so this can be many times the number of cores. 0: this agent carries out no tasks."`
}

// Plugin is a plugin that the configuration names.
type Plugin struct {
	Name     string   `yaml:"name" doc:"The plugin's name, such as provider-openstack."`
	Path     string   `yaml:"path" doc:"Its executable: an absolute path, or a name in plugin_dir. In dev mode or without plugin_dir, the directory of the agent's own executable is searched too. Default: coopr-<name>."`
	Checksum string   `yaml:"checksum" doc:"sha256:<hex> of the executable, or of a descriptor followed by its program. Nothing else is started."`
	Settings Settings `yaml:"settings" doc:"Passed to the plugin unchanged, as JSON. They are never shown, as they may contain credentials. The plugin may read the files and folders that they name by absolute paths."`
	Reads    []string `yaml:"reads" doc:"Further files and folders that the plugin may read and execute."`
	Writes   []string `yaml:"writes" doc:"Files and folders that the plugin may change. A missing one is created as a folder."`
}

// Providers has the settings of the providers that come with Coopr.
type Providers struct {
	Endpoints []string      `yaml:"endpoints" doc:"Networks that providers of rented machines may call although their addresses lead to the agent's machine, to its links or to a metadata service, such as 127.0.0.0/8. In dev mode the default is loopback."`
	Local     LocalProvider `yaml:"local" doc:"The local provider: its machines are directories and processes of this host."`
}

// Isolation has the settings of what keeps plugins away from the agent.
type Isolation struct {
	User       string `yaml:"user" doc:"User whom plugins run as, such as coopr-plugin. The agent has to run as root for it. Default: the agent's user."`
	Unconfined bool   `yaml:"unconfined" doc:"Whether a machine whose kernel has no Landlock runs plugins that are not Coopr's, and what host_exec allows. In dev mode the default is true."`
	Processes  int    `yaml:"processes" doc:"Number of processes of one plugin. 0: no limit. This limit and the others do not apply to local nodes."`
	Memory     Size   `yaml:"memory" doc:"Memory of one plugin. 0: no limit."`
	Files      int    `yaml:"files" doc:"Number of open files of one process of a plugin. 0: no limit."`
	Disk       Size   `yaml:"disk" doc:"Total size of the files in a plugin's own folder. 0: no limit."`
}

// LocalProvider has the settings of the local provider, whose machines live on the agent's host.
type LocalProvider struct {
	Root string `yaml:"root" doc:"Directory of its machines. Default: local in work_dir, or data_dir/local if an earlier version of the agent created it."`
}

// Log has the settings of the log.
type Log struct {
	Level  string `yaml:"level" reload:"yes" doc:"debug, info, warn or error."`
	Format string `yaml:"format" doc:"text or json."`
}

// Raft has the settings of the replicated state.
type Raft struct {
	Store             string        `yaml:"store" doc:"Log store: boltdb or wal."`
	Multiplier        int           `yaml:"multiplier" doc:"Factor by which election and heartbeat timeouts are stretched, 1 to 10. Use more on slow or distant networks; failover takes longer by the same factor."`
	SnapshotInterval  time.Duration `yaml:"snapshot_interval" doc:"How often the agent checks whether a snapshot is due."`
	SnapshotThreshold int           `yaml:"snapshot_threshold" doc:"Number of log entries since the last snapshot after which the next one is due."`
	TrailingLogs      int           `yaml:"trailing_logs" doc:"Number of log entries that are kept before a snapshot, for followers that were away briefly."`
}

// Retention limits what is kept of things that have ended.
type Retention struct {
	Clusters     time.Duration `yaml:"clusters" doc:"How long a terminated cluster is kept, with its operations and plans. The audit log keeps what was done."`
	ClusterCount int           `yaml:"cluster_count" doc:"Largest number of terminated clusters that are kept. The oldest go first."`
	Operations   time.Duration `yaml:"operations" doc:"How long the operations of other clusters are kept after their end, with their plans."`
	Requests     time.Duration `yaml:"requests" doc:"How long request ids are remembered. A request that is repeated within this time is carried out once."`
	Logs         time.Duration `yaml:"logs" doc:"How long this agent keeps the output of tasks."`
	LogSize      Size          `yaml:"log_size" doc:"Largest total size of the output of tasks on this agent. The oldest goes first."`
}

// Shown returns the settings as the API shows them.
func (r Retention) Shown() model.Retention {
	ms := func(d time.Duration) model.Millis { return model.Millis(d.Milliseconds()) }
	return model.Retention{Clusters: ms(r.Clusters), ClusterCount: r.ClusterCount, Operations: ms(r.Operations), Requests: ms(r.Requests),
		Logs: ms(r.Logs), LogSize: int64(r.LogSize)}
}

// Audit limits the audit log, and has its sinks. The first limit that is reached applies.
type Audit struct {
	Retention time.Duration `yaml:"retention" doc:"How long records are kept."`
	Records   int           `yaml:"records" doc:"Largest number of records. Each change of a task is one; an ordinary task has three, of 4 to 10 bytes each."`
	Memory    Size          `yaml:"memory" doc:"Largest memory of the records, on every voter."`
	SinkWait  int           `yaml:"sink_wait" doc:"By how many percent the log may exceed its limits while a sink has not taken its oldest records. Then they are removed, and a record says which sinks lost how many. 0: records do not wait."`
	Sinks     []AuditSink   `yaml:"sinks" flag:"-" doc:"Places to which the leader sends every record, in order, at least once."`
}

// Orphans has the settings of the search for machines that belong to no node.
type Orphans struct {
	Every  time.Duration `yaml:"every" doc:"How often every provider lists its machines."`
	Delete bool          `yaml:"delete" doc:"Remove orphaned machines of known clusters after the grace time. Otherwise they are only reported: coopr provider orphans."`
	Grace  time.Duration `yaml:"grace" doc:"How long an orphaned machine must have been known before it is removed."`
}

// Limits protects an agent from its clients.
type Limits struct {
	Body      Size `yaml:"body" doc:"Largest request body of the API."`
	Resource  Size `yaml:"resource" doc:"Largest plugin resource. It must be the same on every eligible agent, as the leader accepts uploads."`
	Resources Size `yaml:"resources" doc:"Largest total size of all versions of all plugin resources of one tenant."`
	Bodies    Size `yaml:"bodies" doc:"Largest size of all request bodies and large answers that this agent has in memory. Those of one tenant may have a quarter of it, but at least the size of one largest body. 0: no limit."`
	Strangers int  `yaml:"strangers" doc:"Number of API requests a second without a valid token from one client address (of IPv6, from one network /64). Behind a proxy, all clients have its address. 0: no limit, also not of tokens that nobody knows."`
	HTTPConns int  `yaml:"http_conns" reload:"yes" doc:"Number of API connections of one client address (of IPv6, of one network /64). 0: no limit."`
	PeerConns int  `yaml:"peer_conns" doc:"Number of peer connections of one host, for RPC and for Raft each. 0: no limit."`
	Watches   int  `yaml:"watches" doc:"Number of concurrent blocking queries and event streams on this agent. 0: no limit."`
}

// Ports of an agent.
const (
	HTTPPort   = "55054"
	PeerPort   = "55055"
	GossipPort = "55056"
)

// Default returns the configuration of an agent without any settings, in dev mode or not.
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
		Retention: Retention{
			Clusters: 7 * 24 * time.Hour, ClusterCount: 2000, Operations: 30 * 24 * time.Hour, Requests: 24 * time.Hour,
			Logs: 30 * 24 * time.Hour, LogSize: 1 << 30,
		},
		Audit:     Audit{Retention: 90 * 24 * time.Hour, Records: 5_000_000, Memory: 256 << 20, SinkWait: 100},
		Orphans:   Orphans{Every: 10 * time.Minute, Grace: time.Hour},
		Isolation: Isolation{Processes: 512, Memory: 4 << 30, Files: 4096, Disk: 4 << 30},
		Limits: Limits{Body: 16 << 20, Bodies: 64 << 20, Strangers: 50, Resource: 64 << 20, Resources: 1 << 30, HTTPConns: 256, PeerConns: 256,
			Watches: 4096},
	}
	if dev {
		c.Dev = true
		c.HostExec = true
		c.Isolation.Unconfined = true
		c.DataDir = ""
		c.HTTP.Addr = "127.0.0.1:" + HTTPPort
		c.Peer.Addr = "127.0.0.1:" + PeerPort
		c.Gossip.Addr = "127.0.0.1:" + GossipPort
		c.BootstrapExpect = 1
		c.Providers.Endpoints = []string{"127.0.0.0/8", "::1/128"}
	}
	return c
}
