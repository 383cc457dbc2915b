package act

import (
	"context"
	"fmt"

	"github.com/coopr/coopr/engine/change/builtin"
)

// script is an object whose check and actions are shell scripts.
type script struct {
	*object
	content *builtin.Script
}

func (s *script) check(ctx context.Context) (string, string, error) {
	if s.content.Check == "" {
		st, err := s.stamped(ctx)
		switch {
		case err != nil:
			return "", "", err
		case st == nil:
			return "down", "", nil
		}
		state, err := s.told(ctx)
		return state, "", err
	}
	code, said, err := s.sh(ctx, s.content.Check, s.content.Dir, s.content.Env)
	if err != nil {
		return "", said, err
	}
	switch code {
	case 0:
		state, err := s.told(ctx)
		return state, said, err
	case 1, 3:
		return "down", said, nil
	case 2:
		return "outdated", said, nil
	}
	return "", said, fmt.Errorf("the check ended with exit code %d: %s", code, said)
}

func (s *script) run(ctx context.Context, action string) error {
	body := map[string]string{"start": s.content.Start, "stop": s.content.Stop, "restart": s.content.Restart,
		"cleanup": s.content.Cleanup}[action]
	if body == "" && (action == "restart" || action == "cleanup") {
		// The content in place is stopped by its own definition.
		was, err := inPlace(ctx, s.object, s.content)
		if err != nil {
			return err
		}
		if was.Stop != "" {
			if err := s.must(ctx, "stop", was.Stop, was.Dir, was.Env); err != nil {
				return err
			}
		}
		if action == "restart" {
			body = s.content.Start
		}
	}
	if body != "" {
		if err := s.must(ctx, action, body, s.content.Dir, s.content.Env); err != nil {
			return err
		}
	}
	return s.stamp(ctx, action == "start" || action == "restart")
}
