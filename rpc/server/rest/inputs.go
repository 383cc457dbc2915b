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

// The lengths of a part of a list.
const (
	// DefaultPage is the length where the request has no limit.
	DefaultPage = 1000
	// MaxPage bounds every limit.
	MaxPage = 10000
)

// Page returns a part of a list; a limit of 0 means the default.
func Page[T any](all []T, offset, limit int) []T {
	if limit == 0 {
		limit = DefaultPage
	}
	limit = min(limit, MaxPage)
	if offset >= len(all) {
		return nil
	}
	return all[offset:min(len(all), offset+limit)]
}
