package api

// Headers of our own.
const (
	// HeaderTenant names another tenant than the token's; superadmins only.
	HeaderTenant = "Coopr-Tenant"
	// HeaderRequest is the request's id: what has the same id is done once.
	HeaderRequest = "Coopr-Request-Id"
	// HeaderIndex is the index of the state that an answer is from.
	HeaderIndex = "Coopr-Index"
	// HeaderRepeated says that a write had been done before, by the same id.
	HeaderRepeated = "Coopr-Repeated"
	// HeaderTotal is the number of things there are, where a list is a part.
	HeaderTotal = "Coopr-Total"
	// HeaderForwarded names the agent that passed a request on. Such a request
	// is answered or refused, never passed on again.
	HeaderForwarded = "Coopr-Forwarded"
	// HeaderNotLeader marks the refusal of a request that was passed on.
	HeaderNotLeader = "Coopr-Not-Leader"
)

// AllTenants, as the tenant of an event stream, asks for every tenant's events.
const AllTenants = "*"
