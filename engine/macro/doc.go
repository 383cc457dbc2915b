// Package macro expands macros such as %host.service.zookeeper-server% in
// configuration (docs/spec/coopr.md 6.6; decisions: docs/spec/planner.md, "What a task
// carries").
//
// The grammar, between two percent signs:
//
//	expr  = term | map | "join(" ( term | map ) "," quoted ")"
//	map   = "map(" term "," quoted ")"
//	term  = "cluster.owner" | "host.self" | "ip.self" | "ip." type ".self"
//	      | "host.service." name index? | "ip." ( type "." )? "service." name index?
//	      | "num.service." name | "instance.self.service." name
//	index = "[" digits "]"
//
// "%%" stands for one percent sign. A percent sign that begins no known macro
// stays as it is; one that begins a known macro but is mistyped is an error.
//
// A configuration is parsed once (Compile), bound to a cluster once (Bind) and
// expanded for each node (On); only what mentions the node itself is worked out
// again for each node.
package macro
