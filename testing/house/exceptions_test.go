package house

// Each map holds the exceptions to a rule, with the reason for each.

var allowedImports = map[string]string{
	"plugins":                            "holds the test of the plugins' pages, and no code",
	"plugins/provider/hosts → rpc/proto": "sdk.NewTask takes the message of a task, to run a reset outside of any plan",
}

var allowedIDs = map[string]string{
	`cmd/coopr/internal/audit: r.Node + "/"`:            "a column for people, of node, action and service",
	`engine/change/site: "node:" + cl.ID + "/"`:         "the name of a host of change objects, which has a form of its own",
	`plugins/automator/docker: "coopr-" + t.Node + "-"`: "the name of a container, which nothing takes apart",
}

var allowedAgentMethods = map[string]string{
	"agent: Close":          "New and Run call it in deferred functions",
	"agent: hello":          "the worker describes this agent at the start of each session",
	"agent: meshTLS":        "the listener asks once for a certificate, before it serves",
	"agent: peerAddr":       "Raft and the streams of change objects ask for the addresses of other agents",
	"agent: pluginsChanged": "the plugin host calls it; it only leaves a notice",
	"agent: self":           "gossip announces this agent again when it is about to leave",
}

var allowedErrorTexts = map[string]string{
	"internal/yamlfault: Split":       "the YAML library has the line of a syntax error in its text only",
	"engine/model/decode: syntax":     "encoding/json tells the kinds of syntax errors apart by their texts only",
	"consensus/logstore: notThere":    "the stores have no common error for a missing key, and hashicorp/raft compares the text too",
	"plugins/remote/ssh: WaitReady":   "an error that is repeated is reported once",
	"agent/objects: answer":           "the leader gets the message of an object again when it differs",
	"examples/shop/cmd/shop: reload":  "an error that is repeated is logged once",
	"examples/shop/cmd/shop: run":     "further lines of a message are indented",
	"testing/conformance: runPlanner": "a message of several lines is printed on one",
}

var allowedClient = map[string]string{}

var allowedLines = map[string]string{
	"engine/solver":   "one search over shared tables, without a natural seam",
	"consensus/state": "all commands change rows through one writer; the ring of events and the checks of limits can still leave",
}

var allowedTypes = map[string]string{
	"consensus/logformat/encoder": "one method for each kind of record",
	"consensus/logformat/decoder": "one method for each kind of record",
	"rpc/client/Client":           "one method for each route of the API",
	"engine/change/object/Object": "the state machine of one object: its fields are packed, as a site has a million of them, and its " +
		"methods are the handlers of its events",
	"engine/change/sim/Sim": "the state of one simulated world, which its tests read and disturb",
	"agent/config/Config":   "its fields are the settings and the sections of the configuration",
	"engine/plan/Edit":      "one change of a plan: its methods are the steps that keep the counters of the plan together",
	"engine/profile/Run":    "the stored record of a run",
	"engine/solver/world":   "the tables of the original algorithm, which are filled together",
}

var allowedNames = map[string]string{}

var allowedAPI = map[string]string{}

var allowedProse = map[string]string{
	"CHANGELOG.md: settled": "the former name of a key",
}

var allowedCitations = map[string]string{
	"docs/writing-plugins.md: plugins/notes.sh":   "a file that the reader of the page writes",
	"docs/writing-plugins.md: plugins/notes.yaml": "a file that the reader of the page writes",
}

// testRooms are the packages that exist for tests.
var testRooms = []string{
	"testing", "cmd/coopr/internal/clitest", "plugins/pagetest", "plugins/automator/automatortest", "plugins/provider/providertest",
	"rpc/server/apitest",
	"engine/change/search",
}

var allowedDead = map[string]string{
	"rpc/client.WithRequestID": "for programs outside this module that use the client",

	"rpc/identity.masked.Format":      "keeps a secret out of text that prints it by mistake",
	"rpc/identity.masked.GoString":    "keeps a secret out of text that prints it by mistake",
	"rpc/identity.masked.LogValue":    "keeps a secret out of logs",
	"rpc/identity.masked.MarshalText": "keeps a secret out of JSON and YAML",
	"rpc/identity.masked.String":      "keeps a secret out of text that prints it by mistake",

	"agent.Agent.Handler": "testing/mesh asks the API of a simulated agent",
	"agent.Agent.ID":      "testing/mesh names a simulated agent",
	"agent.Agent.Leads":   "testing/mesh asks a simulated agent whether it leads",
	"agent.Agent.Replica": "testing/mesh compares the copies of all voters",

	"engine/change/object.Object.Append":      "the exhaustive search writes states of objects",
	"engine/change/object.Object.Phase":       "the exhaustive search and the tests of the state machine read it",
	"engine/change/object.Object.Relabel":     "the exhaustive search treats states alike that differ only in numbers",
	"engine/change/object.Object.State":       "the tests of the state machine read it",
	"engine/change/object.Object.Target":      "the tests of the state machine read it",
	"engine/change/object.Decode":             "the exhaustive search reads states of objects",
	"engine/change/object.New":                "the exhaustive search makes objects one by one",
	"engine/change/object.recordReader.any":   "part of Decode",
	"engine/change/object.recordReader.byte":  "part of Decode",
	"engine/change/object.recordReader.state": "part of Decode",
	"engine/change/object.recordReader.uint":  "part of Decode",
	"engine/change/sim.Sim.Last":              "testing/bench measures a rollout",
	"engine/change/sim.Sim.RunUntilRest":      "testing/bench measures a rollout",
	"engine/change/sim.Sim.Sent":              "testing/bench measures a rollout",
	"plugins/sdk.OutcomeOf":                   "part of the kit: tests of plugins read the mark of an error with it",
	"plugins/sdk.Retryable":                   "part of the kit: plugins mark errors with it",
}
