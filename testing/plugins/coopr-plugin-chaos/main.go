// Chaos is a plugin for tests: a provider type and an automator type, both named "chaos", whose
// tasks determine what happens: nothing, sleep, fail, panic, crash, hang, print garbage.
//
// The field "do" of a task (of the service's action, or the provider's) is one of the
// words of the switch in behave; "for" is a duration, "text" a text, "count" a number.
//
// The environment, from the host's configuration:
//
//	CHAOS_DIR    a folder: every verb appends "action task fence" to calls.log
//	             there, and the provider keeps its nodes there as files
//	CHAOS_START  a file that holds "garbage", "exit", "hang" or nothing: how
//	             the process begins
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/plugins/sdk"
)

// version is set by the linker in tests of upgrades.
var version = "1.0.0"

func main() {
	if b, err := os.ReadFile(os.Getenv("CHAOS_START")); err == nil {
		switch strings.TrimSpace(string(b)) {
		case "garbage":
			fmt.Println("Welcome to my plugin!")
		case "exit":
			fmt.Fprintln(os.Stderr, "no libfoo.so")
			os.Exit(7)
		case "hang":
			time.Sleep(time.Hour)
		}
	}
	c := &chaos{dir: os.Getenv("CHAOS_DIR")}
	sdk.Serve(sdk.Plugin{Provider: provider{c}, Automator: automator{c}})
}

type chaos struct{ dir string }

// Describe returns the descriptor of both types.
func (c *chaos) Describe() model.PluginType {
	fields := model.PluginFields{Fields: map[string]model.FieldSchema{
		"do":   {Label: "Do", Type: "text"},
		"for":  {Label: "For", Type: "text", Tip: "a duration such as 10ms"},
		"text": {Label: "Text", Type: "text"},
		"mode": {Label: "Mode", Type: "select", Options: []string{"calm", "wild"}},
	}}
	return model.PluginType{
		Base: model.Base{Name: "chaos", Description: "Does what it is told, for tests"}, Plugin: version,
		Parameters: model.PluginParameters{Admin: fields, User: fields}, Comparators: []string{"lucky"},
	}
}

// Rank is the comparator "lucky": the hardware type whose entry has "luck" comes first, and
// services whose names begin with "lucky" have the weight ten. It fails for templates called
// "unlucky".
func (c *chaos) Rank(_ context.Context, q model.RankingQuestion) (*model.Ranking, error) {
	if q.Template == "unlucky" {
		return nil, errors.New("bad luck")
	}
	r := &model.Ranking{Worth: map[string]int64{}}
	for _, lucky := range []bool{true, false} {
		for _, h := range q.HardwareTypes {
			for _, i := range q.ImageTypes {
				if (h.Entry["luck"] != nil) == lucky {
					r.Kinds = append(r.Kinds, model.RankedKind{HardwareType: h.Name, ImageType: i.Name})
				}
			}
		}
	}
	for _, s := range q.Services {
		if strings.HasPrefix(s, "lucky") {
			r.Worth[s] = 10
		}
	}
	return r, nil
}

// Validate refuses the text "bad".
func (c *chaos) Validate(_ context.Context, _ sdk.Scope, fields map[string]any) model.Faults {
	var faults model.Faults
	if fields["text"] == "bad" {
		faults.Add("text", "is bad")
	}
	return faults
}

// called records the call if there is a folder for that.
func (c *chaos) called(t *sdk.Task, action string) error {
	if c.dir == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(c.dir, "calls.log"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %s %d\n", action, t.ID, t.Fence)
	return err
}

// order holds what a task may ask for.
type order struct {
	Do    string `json:"do"`
	For   string `json:"for"`
	Text  string `json:"text"`
	Count int    `json:"count"`
}

// behave does what the task asks for.
func (c *chaos) behave(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	if err := c.called(t, t.Action); err != nil {
		return nil, err
	}
	// Most tasks of a benchmark lack the field; decoding them would be most of the work.
	if !strings.Contains(string(t.RawInput()), `"do"`) {
		return nil, nil
	}
	fields, err := t.Fields()
	if err != nil {
		return nil, err
	}
	var o order
	b, _ := json.Marshal(fields)
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, sdk.Fatal(err)
	}
	d, _ := time.ParseDuration(o.For)
	switch o.Do {
	case "", "nothing":
		return nil, nil
	case "sleep":
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "fail":
		t.Logf("about to fail: %s", o.Text)
		return nil, errors.New(o.Text)
	case "fail-once":
		if t.Attempt > 1 {
			return nil, nil
		}
		return nil, errors.New(o.Text)
	case "fatal":
		return nil, sdk.Fatal(errors.New(o.Text))
	case "nothing-done":
		return nil, sdk.NothingDone(errors.New(o.Text))
	case "unknown":
		return nil, sdk.Unknown(errors.New(o.Text))
	case "panic":
		panic(o.Text)
	case "crash":
		time.Sleep(d)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "crash-once":
		if t.Attempt > 1 {
			return nil, nil
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "exit":
		os.Exit(9)
	case "hang": // deaf to its context
		time.Sleep(time.Hour)
	case "hang-once":
		if t.Attempt == 1 {
			time.Sleep(time.Hour)
		}
	case "freeze": // the whole process
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(time.Hour)
	case "log":
		for i := range o.Count {
			fmt.Fprintf(t.Stdout(), "%s %d\n", o.Text, i)
		}
	case "save":
		return nil, t.Save("text", o.Text)
	case "print": // on the process's own output, where it does no harm
		fmt.Println(o.Text)
		fmt.Fprintln(os.Stderr, o.Text)
	case "leak": // its whole input, wherever it can, and fail
		in := string(t.RawInput())
		t.Logf("%s", in)
		fmt.Println(in)
		fmt.Fprintln(os.Stderr, in)
		return nil, sdk.Fatal(errors.Join(errors.New(in), t.Save("text", in)))
	case "output":
		return &sdk.Output{Hostname: "h.chaos", IPAddresses: map[string]string{"access_v4": "127.0.0.9"},
			Result: map[string]any{"text": o.Text}}, nil
	case "spawn": // children that outlive a killed plugin, marked as the automators mark them
		cmd := exec.Command("sh", "-c", "sleep 1000 & wait")
		cmd.Env = append(os.Environ(), "COOPR_TASK="+t.ID, fmt.Sprintf("COOPR_FENCE=%d", t.Fence))
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		t.Logf("%d", cmd.Process.Pid)
		_ = cmd.Wait()
	default:
		return nil, sdk.Fatal(fmt.Errorf("chaos does not know %q", o.Do))
	}
	return nil, nil
}

type provider struct{ *chaos }

func (p provider) path(cluster, node string) string {
	return filepath.Join(p.dir, "node-"+cluster+"-"+node+".json")
}

// Create behaves as its task says, then creates the node's file.
func (p provider) Create(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	if p.dir != "" {
		b, err := json.Marshal(sdk.Resource{Cluster: t.Cluster, Node: t.Node, Fence: t.Fence, ID: "chaos-" + t.Node})
		if err == nil {
			err = os.WriteFile(p.path(t.Cluster, t.Node), b, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	out, err := p.behave(ctx, t)
	if err == nil && out == nil {
		out = &sdk.Output{Result: map[string]any{"providerid": "chaos-" + t.Node}}
	}
	return out, err
}

// Confirm behaves as its task says.
func (p provider) Confirm(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	out, err := p.behave(ctx, t)
	if err == nil && out == nil {
		out = &sdk.Output{IPAddresses: map[string]string{"access_v4": "127.0.0.1", "bind_v4": "127.0.0.1"}}
	}
	return out, err
}

// Delete behaves as its task says, then removes the node's file.
func (p provider) Delete(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	out, err := p.behave(ctx, t)
	if err == nil && p.dir != "" {
		if err := os.Remove(p.path(t.Cluster, t.Node)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return out, err
}

// List returns the nodes' files.
func (p provider) List(_ context.Context, r sdk.ListRequest, found func(sdk.Resource) error) error {
	files, _ := filepath.Glob(filepath.Join(p.dir, "node-*.json"))
	for _, f := range files {
		var x sdk.Resource
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
		if err == nil && (r.Cluster == "" || r.Cluster == x.Cluster) {
			err = found(x)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type automator struct{ *chaos }

// Bootstrap behaves as its task says.
func (a automator) Bootstrap(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	return a.behave(ctx, t)
}

// Run behaves as its task says.
func (a automator) Run(ctx context.Context, t *sdk.Task) (*sdk.Output, error) {
	return a.behave(ctx, t)
}

// Check reports that nothing is done yet.
func (a automator) Check(_ context.Context, t *sdk.Task) (bool, *sdk.Output, error) {
	return false, nil, a.called(t, "OBSERVE")
}
