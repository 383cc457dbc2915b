package problem_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/coopr/coopr/engine/problem"
)

func TestCodes(t *testing.T) {
	missing := problem.New(problem.NotFound, "there is no cluster %q", "shop")
	for _, tt := range []struct {
		name string
		err  error
		code problem.Code
		text string
	}{
		{"nil", nil, "", ""},
		{"plain", io.EOF, problem.Internal, "EOF"},
		{"a code alone", problem.NoLeader, problem.NoLeader, "no-leader"},
		{"new", missing, problem.NotFound, `there is no cluster "shop"`},
		{"wrapped by others", fmt.Errorf("delete: %w", missing), problem.NotFound, `delete: there is no cluster "shop"`},
		{"the outermost wins", problem.New(problem.Conflict, "delete: %w", missing), problem.Conflict, `delete: there is no cluster "shop"`},
		{"joined", errors.Join(io.EOF, missing), problem.NotFound, "EOF\n" + `there is no cluster "shop"`},
		{"wrap", problem.Wrap(problem.Quota, io.EOF), problem.Quota, "EOF"},
		{"wrap nil", problem.Wrap(problem.Quota, nil), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := problem.CodeOf(tt.err); got != tt.code {
				t.Errorf("the code is %q, not %q", got, tt.code)
			}
			if tt.err == nil {
				return
			}
			if tt.err.Error() != tt.text {
				t.Errorf("the text is %q, not %q", tt.err, tt.text)
			}
			if tt.code != problem.Internal && !errors.Is(tt.err, tt.code) {
				t.Errorf("%v is not %v", tt.err, tt.code)
			}
			if errors.Is(tt.err, problem.Forbidden) {
				t.Errorf("%v is forbidden", tt.err)
			}
		})
	}
	if err := problem.New(problem.Conflict, "delete: %w", missing); !errors.Is(err, problem.NotFound) || !errors.Is(err, error(missing)) {
		t.Error("the cause is lost")
	}
	if err := problem.Wrap(problem.Quota, io.EOF); !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
}
