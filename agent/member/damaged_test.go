package member

import (
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
		voters, others string
		want           bool
	}{
		{"a", "", false},
		{"ab", "", false},
		{"abc", "", true},
		{"abcd", "", true},
		{"abcde", "", true},
		{"b", "a", true},
		{"bc", "a", true},
		{"bcd", "", false}, // of another group
		{"", "", false},
	} {
		if got := dispensable("a", group(c.voters, c.others)); got != c.want {
			t.Errorf("voters %q, others %q: %v", c.voters, c.others, got)
		}
	}
}
