package member

import (
	"strings"
	"testing"

	pb "github.com/coopr/coopr/rpc/proto"
)

func TestDispensable(t *testing.T) {
	group := func(voters, others string) (out []*pb.Server) {
		for _, id := range voters {
			out = append(out, &pb.Server{Id: string(id), Voter: true})
		}
		for _, id := range others {
			out = append(out, &pb.Server{Id: string(id)})
		}
		return out
	}
	for _, c := range []struct {
		voters, others, down string
		want                 bool
	}{
		{"a", "", "", false},
		{"ab", "", "", false},
		{"abc", "", "", true},
		{"abc", "", "c", false},
		{"abcd", "", "", true},
		{"abcd", "", "c", false},
		{"abcde", "", "", true},
		{"abcde", "", "d", true},
		{"abcde", "", "de", false},
		{"b", "a", "", true},
		{"bc", "a", "", true},
		{"bc", "a", "c", false},
		{"bcd", "", "", false}, // of another group
		{"", "", "", false},
	} {
		follows := func(voter string) bool { return !strings.Contains(c.down, voter) }
		if got := dispensable("a", group(c.voters, c.others), follows); got != c.want {
			t.Errorf("voters %q, others %q, down %q: %v", c.voters, c.others, c.down, got)
		}
	}
}
