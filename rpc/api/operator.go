package api

// TransferBody names who shall lead.
type TransferBody struct {
	To string `json:"to,omitempty" doc:"The id of a voter; absent: any"`
}

// Done is the answer where there is nothing else to say.
type Done struct {
	Done bool `json:"done"`
}
