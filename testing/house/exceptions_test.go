package house

// Each map holds the exceptions to a rule, with the reason for each.

var allowedImports = map[string]string{
	"plugins":                            "holds the test of the plugins' pages, and no code",
	"plugins/provider/hosts → rpc/proto": "sdk.NewTask takes the message of a task, to run a reset outside of any plan",
}

var allowedClient = map[string]string{}

var allowedLines = map[string]string{}

var allowedTypes = map[string]string{}

var allowedNames = map[string]string{}

var allowedProse = map[string]string{}

var allowedCitations = map[string]string{
	"docs/writing-plugins.md: plugins/notes.sh":   "a file that the reader of the page writes",
	"docs/writing-plugins.md: plugins/notes.yaml": "a file that the reader of the page writes",
}

// testRooms are the packages that exist for tests.
var testRooms = []string{
	"testing", "cmd/coopr/internal/clitest", "plugins/pagetest", "plugins/automator/automatortest", "plugins/provider/providertest", "rpc/server/apitest",
	"engine/change/search", "engine/change/sim",
}

var allowedDead = map[string]string{
	"plugins/sdk.OutcomeOf": "part of the kit: tests of plugins read the mark of an error with it",
	"plugins/sdk.Retryable": "part of the kit: plugins mark errors with it",
}
