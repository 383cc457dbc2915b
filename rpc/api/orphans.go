package api

// RemoveOrphanBody names an orphan.
type RemoveOrphanBody struct {
	ID string `json:"id" doc:"The provider's own name for the machine, as the report has it"`
}

// Removed is the answer after a machine was removed.
type Removed struct {
	ID string `json:"id"`
}
