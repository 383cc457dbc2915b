package api

// TransferBody names the next leader.
type TransferBody struct {
	To string `json:"to,omitempty" doc:"The id or name of a voter; absent: any voter"`
}

// Done is the answer of a request that has no other result.
type Done struct {
	Done bool `json:"done"`
}
