package api

import (
	"github.com/coopr/coopr/engine/plan/tree"
)

// PodInfo is one service of a node: its definition and its status.
type PodInfo struct {
	Info   PodTaskInfo   `json:"info"`
	Status PodTaskStatus `json:"status"`
}

// PodTaskInfo describes a task of a pod.
type PodTaskInfo struct {
	Name        string            `json:"name"`
	Pod         string            `json:"pod"`
	Service     string            `json:"service"`
	Version     int               `json:"version" doc:"The version of the service's definition"`
	Node        string            `json:"node" doc:"The node's id"`
	IPAddresses map[string]string `json:"ipaddresses,omitempty"`
	TaskID      PodValue          `json:"taskId"`
	SlaveID     PodValue          `json:"slaveId" doc:"The machine, in the provider's words"`
	Command     PodValue          `json:"command" doc:"The script that starts the service, without secrets"`
}

// PodTaskStatus is the state of a task of a pod. State is that of Mesos, such as TASK_RUNNING, or empty where Mesos has none.
type PodTaskStatus struct {
	tree.PodTask
	TaskID PodValue `json:"taskId"`
	State  string   `json:"state,omitempty"`
}

// PodValue is a value in the form in which Mesos has ids and commands.
type PodValue struct {
	Value string `json:"value,omitempty"`
}
