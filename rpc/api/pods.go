package api

// PodOrdered is the answer to an order about a pod.
type PodOrdered struct {
	Pod   string   `json:"pod"`
	Tasks []string `json:"tasks"`
}
