package api

// Headers of this API.
const (
	// HeaderTenant names another tenant than the token's. Only superadmins may send it.
	HeaderTenant = "Coopr-Tenant"
	// HeaderRequest is the id of a request. The mesh carries out requests with the same id only
	// once, for as long as it remembers the id: a day, unless the agents are configured otherwise.
	HeaderRequest = "Coopr-Request-Id"
	// HeaderRetry marks a request that was sent before with the same id, when no answer came: the mesh refuses it only
	// once no copy of it can be carried out any more. Its value is "true".
	HeaderRetry = "Coopr-Retry"
	// HeaderHold is how long the contacted agent may hold the request while it reaches no leader, such as
	// "5s". Without it that is 600 ms; more than a minute counts as a minute.
	HeaderHold = "Coopr-Hold"
	// HeaderIndex is the index of the state that an answer is from.
	HeaderIndex = "Coopr-Index"
	// HeaderAge is the age of the state that a stale read is from, such as "5m3s": how long ago the answering agent last
	// heard from the leader. Without it, the agent has not heard from a leader since it started.
	HeaderAge = "Coopr-Age"
	// HeaderLogMissing is in the answer to a request for the log of a task if the agent that has the log did not send it, and says why.
	// The body is then the end of the log that the state keeps.
	HeaderLogMissing = "Coopr-Log-Missing"
	// HeaderRepeated is "true" if a write with the same request id was carried out before.
	HeaderRepeated = "Coopr-Repeated"
	// HeaderTotal is how many rows the whole list has that the filter selects, if they were counted.
	HeaderTotal = "Coopr-Total"
	// HeaderNext is the cursor of the next page of a list. The last page has none.
	HeaderNext = "Coopr-Next"
	// HeaderForwarded names the agent that forwarded a request. A forwarded request is answered or
	// refused, and never forwarded again.
	HeaderForwarded = "Coopr-Forwarded"
	// HeaderClient is the address of the client whose request an agent has forwarded. It counts only if an agent sends it.
	HeaderClient = "Coopr-Client"
	// HeaderCSRF is in every write of the console. The forms of other sites cannot send it.
	HeaderCSRF = "Coopr-Csrf"
	// HeaderNotLeader marks the refusal of a forwarded request by an agent that does not lead.
	HeaderNotLeader = "Coopr-Not-Leader"
	// HeaderThrough is the name of the agent that has connected to a port of a node.
	HeaderThrough = "Coopr-Through"
)

// AllTenants stands for every tenant, as the tenant of a list or an event stream.
const AllTenants = "*"

// ConsoleSession is what the console asks its agent before anything else.
type ConsoleSession struct {
	// Open: the browser has a cookie, which may have ended.
	Open bool `json:"open"`
	// Dev: the agent gives its own token to a browser on the same machine.
	Dev bool `json:"dev"`
	// Pages: people can log in on the pages of an identity provider.
	Pages bool `json:"pages"`
}
