package worker

import (
	"encoding/json"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/internal/mask"
	"github.com/coopr/coopr/plugins/host"
	pb "github.com/coopr/coopr/rpc/proto"
)

// marked returns a type that marks the names of a task's sensitive results, for model.Sensitive.
func marked(t *pb.Task) model.PluginType {
	fields := map[string]model.FieldSchema{}
	for _, name := range t.Sensitive {
		fields[name] = model.FieldSchema{Sensitive: true}
	}
	return model.PluginType{Parameters: model.PluginParameters{Admin: model.PluginFields{Fields: fields}}}
}

// secretResults returns the texts of the sensitive ones among the results in a task's output.
func secretResults(t *pb.Task, output []byte) []string {
	var o model.TaskOutput
	if len(output) == 0 || json.Unmarshal(output, &o) != nil {
		return nil
	}
	return host.SecretTexts(marked(t), o.Result)
}

// shown puts the sensitive values back, at every depth, into a copy of the values in which secrets are hidden.
func shown(t model.PluginType, values, hidden map[string]any) {
	for name, v := range values {
		shownIn(v, hidden[name])
	}
	for _, name := range model.Sensitive(t, values) {
		hidden[name] = values[name]
	}
}

// shownIn does the same within a value that is not sensitive itself. hidden has the shape of v.
func shownIn(v, hidden any) {
	switch v := v.(type) {
	case map[string]any:
		if hidden, ok := hidden.(map[string]any); ok {
			shown(model.PluginType{}, v, hidden)
		}
	case []any:
		if hidden, ok := hidden.([]any); ok && len(hidden) == len(v) {
			for i := range v {
				shownIn(v[i], hidden[i])
			}
		}
	}
}

// hideIn hides the secrets of a task in the output of an automator, but for its sensitive results if the leader encrypts them: an
// automator may return one that it was given.
func hideIn(t *pb.Task, hide *mask.Mask, output []byte) []byte {
	var in, out map[string]json.RawMessage
	var given, hidden map[string]any
	masked := hide.JSON(output)
	if !t.Encrypts || len(secretResults(t, output)) == 0 || json.Unmarshal(output, &in) != nil || json.Unmarshal(masked, &out) != nil ||
		json.Unmarshal(in["result"], &given) != nil || json.Unmarshal(out["result"], &hidden) != nil {
		return masked
	}
	shown(marked(t), given, hidden)
	var err error
	if out["result"], err = json.Marshal(hidden); err != nil {
		return masked
	}
	if output, err = json.Marshal(out); err != nil {
		return masked
	}
	return output
}

// hideInSaved hides the secrets of a task in a value that its automator saves, but for sensitive ones if the leader encrypts them.
func hideInSaved(t *pb.Task, hide *mask.Mask, s *pb.SaveState) *pb.SaveState {
	var value any
	if json.Unmarshal(s.Value, &value) != nil {
		return s // the plugin's kit writes JSON
	}
	given, hidden := map[string]any{s.Key: value}, map[string]any{}
	if json.Unmarshal(hide.JSON(s.Value), &value) != nil {
		return s
	}
	if hidden[s.Key] = value; t.Encrypts {
		shown(marked(t), given, hidden)
	}
	text, err := json.Marshal(hidden[s.Key])
	if err != nil {
		return s
	}
	return &pb.SaveState{Task: s.Task, Fence: s.Fence, Key: s.Key, Value: text}
}
