package api

import (
	"github.com/coopr/coopr/engine/plan/tree"
)

// PodInfo is one service of a node: its definition and its status.
type PodInfo struct {
	Info   PodTaskInfo  `json:"info"`
	Status tree.PodTask `json:"status"`
}

// PodTaskInfo describes a task of a pod.
type PodTaskInfo struct {
	Name        string            `json:"name"`
	Pod         string            `json:"pod"`
	Service     string            `json:"service"`
	Version     int               `json:"version" doc:"The version of the service's definition"`
	Node        string            `json:"node" doc:"The node's id"`
	IPAddresses map[string]string `json:"ipaddresses,omitempty"`
}
