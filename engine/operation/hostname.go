package operation

import (
	"strconv"
	"strings"
)

// hostname returns a node's host name (docs/spec/coopr.md 4.8): the cluster's name without
// leading digits, cut so that the first label has at most 63 characters, then the cluster's id
// without leading zeros, "-", the node's number, and the suffix (default "local"). It is in
// lower case. Characters that a host name cannot have become "-".
func hostname(clusterName, clusterID string, number int, suffix string) string {
	id := strings.Trim(hostPart(strings.TrimLeft(clusterID, "0")), "-")
	tail := id + "-" + strconv.Itoa(number)
	if len(tail) > 63 {
		tail = strings.TrimLeft(tail[len(tail)-63:], "-")
	}
	name := strings.TrimLeft(hostPart(strings.TrimLeft(clusterName, "0123456789")), "-")
	if room := 63 - len(tail); len(name) > room {
		name = name[:room]
	}
	suffix = strings.ToLower(strings.TrimPrefix(suffix, "."))
	if suffix == "" {
		suffix = "local"
	}
	return strings.TrimLeft(name+tail, "-") + "." + suffix
}

func hostPart(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
}
