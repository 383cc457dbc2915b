package model

import (
	"fmt"
	"strconv"
	"strings"
)

// ClusterID is the id of a cluster: a decimal number of at least eight digits,
// "00000042". It is unique in the mesh and never used again.
type ClusterID string

// OperationID is the id of an operation: the cluster's id, "-" and the number of
// the operation within the cluster, of at least three digits, "00000042-001".
type OperationID string

// NodeID is the id of a node: the cluster's id, "-" and the number of the node
// within the cluster, "00000042-1000".
type NodeID string

// TaskID is the id of a task: the operation's id, "/" and the index of the task's
// vertex in the graph of the operation's plan, "00000042-001/17".
type TaskID string

// PlacementID names a service on a node: the node's id, "/" and the name of the
// service, "00000042-1000/shop-web". The name is empty for the node's machine alone.
type PlacementID string

// NewClusterID returns the id of the cluster with this number.
func NewClusterID(number int) ClusterID { return ClusterID(fmt.Sprintf("%08d", number)) }

// Number returns the number of the cluster, and false if the id is malformed.
func (c ClusterID) Number() (int, bool) {
	n, err := strconv.Atoi(string(c))
	return n, err == nil && isNumber(string(c), 8)
}

// Operation returns the id of the cluster's operation with this number.
func (c ClusterID) Operation(number int) OperationID {
	return OperationID(fmt.Sprintf("%s-%03d", c, number))
}

// Node returns the id of the cluster's node with this number.
func (c ClusterID) Node(number int) NodeID {
	return NodeID(string(c) + "-" + strconv.Itoa(number))
}

// Cluster returns the id of the cluster that the operation belongs to, or "" if
// the id is malformed.
func (o OperationID) Cluster() ClusterID { return clusterOf(string(o), 3) }

// Task returns the id of the operation's task at this vertex of its plan.
func (o OperationID) Task(vertex uint32) TaskID {
	return TaskID(string(o) + "/" + strconv.FormatUint(uint64(vertex), 10))
}

// Cluster returns the id of the cluster that the node belongs to, or "" if the id
// is malformed.
func (n NodeID) Cluster() ClusterID { return clusterOf(string(n), 1) }

// Placement returns the id of a service on the node.
func (n NodeID) Placement(service string) PlacementID {
	return PlacementID(string(n) + "/" + service)
}

// Node returns the id of the node.
func (p PlacementID) Node() NodeID {
	node, _, _ := strings.Cut(string(p), "/")
	return NodeID(node)
}

// Split returns the operation that the task belongs to and the vertex of its plan.
// It fails if the id is malformed.
func (t TaskID) Split() (operation OperationID, vertex uint32, err error) {
	op, number, _ := strings.Cut(string(t), "/")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || op == "" || !isNumber(number, 1) {
		return "", 0, fmt.Errorf("%q is not the id of a task: expected the id of an operation, a slash and a number", string(t))
	}
	return OperationID(op), uint32(n), nil
}

// clusterOf returns what precedes the last "-" of an id if a number of at least
// this many digits follows it.
func clusterOf(id string, digits int) ClusterID {
	at := strings.LastIndexByte(id, '-')
	if at < 0 || !isNumber(id[at+1:], digits) {
		return ""
	}
	return ClusterID(id[:at])
}

// isNumber reports whether s is a number as fmt prints it with %0<width>d.
func isNumber(s string, width int) bool {
	if len(s) < width || len(s) > width && s[0] == '0' {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

// TokenID returns the id of the token with which an attempt at a task identifies itself elsewhere. The fence is that of its lease.
func (t TaskID) TokenID(fence uint64) string { return string(t) + "/" + strconv.FormatUint(fence, 10) }
