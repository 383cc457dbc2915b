// Package admission admits agents to the mesh and renews their certificates.
//
// An agent that joins makes a key and asks a voter, whose CA the join token names, for certificates. The leader counts the use
// of the token and records the agent. Any voter signs, as each can open the CA's key, which the state has sealed. Role, zone and
// names in certificates come from the record and never from the request; but a voter is trusted with everything, so it names its
// API itself.
package admission
