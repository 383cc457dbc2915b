package clusters

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/rpc/api"
	"github.com/coopr/coopr/rpc/server/rest"
)

func commandRoute(s *rest.Server) {
	rest.Stream(
		s,
		rest.Route{
			ID:      "runNodeCommand",
			Method:  http.MethodPost,
			Path:    "/v1/nodes/{node}/exec",
			Tag:     "nodes",
			Rule:    rest.Rule{Watches: true, Private: true},
			Summary: "Run a command on a node",
			Description: "The agent that reaches the node runs the command as the node's tasks run, and ends it when the client disconnects. " +
				"The audit log has the command, and not its output. A request with the id of an earlier one is refused.",
		},
		"application/x-ndjson",
		"One CommandLine per line; the last one has the exit status",
		func(ctx context.Context, c *rest.Call, in *struct {
			ID   string `path:"node" doc:"The node's id"`
			Body rest.Raw[api.NodeCommand]
		}, w http.ResponseWriter, r *http.Request) error {
			v, err := s.View(ctx, c)
			if err != nil {
				return err
			}
			n, err := c.Node(v, in.ID)
			if err != nil {
				return err
			}
			body, err := in.Body.Value()
			if err != nil {
				return err
			}
			if faults := checkCommand(body); len(faults) > 0 {
				return rest.Invalid(faults)
			}
			i := rest.IncidentOf(s, r, model.IncidentNodeCommand, n.ID+": "+quoted(body.Command))
			err = s.Operations.RunCommand(ctx, c.Who, n.ID, body, i, func(l api.CommandLine) error {
				b, err := json.Marshal(l)
				if err == nil {
					_, err = w.Write(append(b, '\n'))
				}
				return err
			})
			if err != nil && r.Context().Err() != nil {
				return rest.Ended(r.Context()) // or the client is gone
			}
			return err
		},
	)
}

// checkCommand returns the faults of a command.
func checkCommand(b api.NodeCommand) (faults model.Faults) {
	size := 0
	for i, word := range b.Command {
		size += len(word) + 1
		path := "command[" + strconv.Itoa(i) + "]"
		if strings.ContainsRune(word, 0) {
			faults.Add(path, "contains a zero byte")
		}
		if model.HasSealedRef(word) {
			faults.Add(path, "looks like the name of an encrypted value: write it in another way")
		}
	}
	switch {
	case len(b.Command) == 0 || b.Command[0] == "":
		faults.Add("command", "is empty: give the program and its arguments")
	case size > api.MaxCommand:
		faults.Add("command", "is longer than 64 KiB: put its input into a file or a plugin resource")
	}
	if b.Timeout < 0 || b.Timeout > api.MaxCommandTime {
		faults.Add("timeout", "must be 0 to 3600 seconds")
	}
	return faults
}

// quoted returns a command as a person would write it for a shell, for the audit log.
func quoted(command []string) string {
	out := make([]string, len(command))
	for i, word := range command {
		if out[i] = word; word == "" || strings.ContainsAny(word, " \t\n\"'\\$`;&|<>()*?[]{}#~!") {
			out[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(out, " ")
}
