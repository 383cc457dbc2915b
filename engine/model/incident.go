package model

import "strings"

// Types of incidents. Those that end in .refused are counted: there is one record a minute for each principal or source, and action.
const (
	IncidentLogin        = "login"
	IncidentLoginRefused = "login.refused"
	IncidentTokenRefused = "token.refused"   // nobody knows the token
	IncidentRefused      = "request.refused" // the principal has no right
	// An agent was given the passphrase of its keyring, or a wrong one.
	IncidentUnlocked = "keyring.unlocked"
	// Somebody has run a command on a node.
	IncidentNodeCommand = "node.command"
	// Somebody has opened a connection to a port of a node, or it has ended.
	IncidentNodeForward   = "node.forward"
	IncidentUnlockRefused = "keyring.unlock.refused"
)

// Incident is a request that changes nothing, or more than the state, and is in the audit log all the same: a login, a refusal, an
// export.
type Incident struct {
	Type    string
	Tenant  string // of the principal; "" for strangers
	Actor   string // "" for strangers
	Action  string // the route
	Object  string // its path, unless incidents of the type are counted
	Source  string // the address, or the network, from which it came
	Agent   string // which the client talked to
	Request string // its id
	Count   int64
	First   int64 // Unix milliseconds
	Last    int64
}

// Counted reports whether incidents of the type are counted.
func (i *Incident) Counted() bool { return strings.HasSuffix(i.Type, ".refused") }
