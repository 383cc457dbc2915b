package rest

// None is the input of a route without parameters.
type None struct{}

// ByName names a definition or a tenant in the path.
type ByName struct {
	Name string `path:"name" doc:"The definition's name"`
}

// ByCluster names a cluster in the path.
type ByCluster struct {
	ID string `path:"cluster" doc:"The cluster's id or name"`
}

// ByOperation names an operation in the path.
type ByOperation struct {
	ID string `path:"operation" doc:"The operation's id"`
}
