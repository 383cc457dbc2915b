package api

// RemoveOrphanBody names an orphan.
type RemoveOrphanBody struct {
	ID string `json:"id" doc:"The provider's own name for the machine, as the report has it"`
}

// Removed is the answer when a machine is gone.
type Removed struct {
	ID string `json:"id"`
}
