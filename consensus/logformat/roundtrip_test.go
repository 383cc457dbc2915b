package logformat_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/coopr/coopr/consensus/logformat"
	"github.com/coopr/coopr/engine/change/object"
	"github.com/coopr/coopr/engine/change/site"
	"github.com/coopr/coopr/engine/model"
	"github.com/coopr/coopr/engine/plan/tree"
	"github.com/coopr/coopr/engine/profile"
	pb "github.com/coopr/coopr/rpc/proto"
)

// notStored lists the fields of domain types that the log leaves out.
var notStored = []string{
	"Node.Health", // readers fill it in from the table of health
}

// TestRoundTrip converts random values of every domain type of the log to its
// message, to bytes and back. The values set every exported field, so that a
// field that a domain type gains and its message lacks fails here.
func TestRoundTrip(t *testing.T) {
	check(t, logformat.EncodeOperation, logformat.DecodeOperation)
	check(t, logformat.EncodeOperationRequest, logformat.DecodeOperationRequest)
	check(t, logformat.EncodeCluster, logformat.DecodeCluster)
	check(t, logformat.EncodeNode, logformat.DecodeNode)
	check(t, logformat.EncodeNodeHealth, logformat.DecodeNodeHealth)
	check(t, logformat.EncodeTenant, logformat.DecodeTenant)
	check(t, logformat.EncodeToken, logformat.DecodeToken)
	check(t, logformat.EncodeAgent, logformat.DecodeAgent)
	check(t, logformat.EncodePluginType, logformat.DecodePluginType)
	check(t, logformat.EncodePluginResource, logformat.DecodePluginResource)
	check(t, logformat.EncodeResourceVersion, logformat.DecodeResourceVersion)
	check(t, logformat.EncodeResourceKey, logformat.DecodeResourceKey)
	check(t, logformat.EncodeResourceSet, logformat.DecodeResourceSet)
	check(t, logformat.EncodeProfile, logformat.DecodeProfile)
	check(t, logformat.EncodeProgram, logformat.DecodeProgram)
	check(t, logformat.EncodeSchedule, logformat.DecodeSchedule)
	check(t, logformat.EncodePreferences, logformat.DecodePreferences)
	check(t, logformat.EncodeUsage, logformat.DecodeUsage)
	check(t, logformat.EncodeRun, logformat.DecodeRun)
	check(t, logformat.EncodeRunEvent, logformat.DecodeRunEvent)
	check(t, logformat.EncodeSite, logformat.DecodeSite)
	check(t, logformat.EncodeSwitch, logformat.DecodeSwitch)
	check(t, logformat.EncodeHost, logformat.DecodeHost)
	check(t, logformat.EncodeGeneration, logformat.DecodeGeneration)
	check(t, logformat.EncodePlanTree, logformat.DecodePlanTree)
}

// TestRoundTripBetweenAgents does the same with what only agents send each other.
func TestRoundTripBetweenAgents(t *testing.T) {
	survives(t, logformat.EncodeOrders, logformat.DecodeOrders, func(*rapid.T, any, any) {})
	rapid.Check(t, func(t *rapid.T) {
		agents := value(t, reflect.TypeFor[[]model.Agent](), neverNil)
		b, err := logformat.Marshal(logformat.EncodeRegistry(agents.Interface().([]model.Agent), nil))
		if err != nil {
			t.Fatal(err)
		}
		read := &pb.AgentRegistry{}
		if err := proto.Unmarshal(b, read); err != nil {
			t.Fatal(err)
		}
		if path := difference(agents, reflect.ValueOf(logformat.DecodeRegistry(read)), "Agents"); path != "" {
			t.Fatalf("%s differs: %+v became %+v", path, agents, read)
		}
	})
}

// FuzzOrders expects that orders which can be read are the same when they were sent on.
func FuzzOrders(f *testing.F) {
	o := &site.Orders{Tenant: "t", Site: "s", Parts: []site.Part{{Generation: 1, Document: &site.Document{Name: "s"}, IDs: []object.ID{1}}},
		Nodes: map[string]site.Access{"node:c/1": {Hostname: "h", Results: map[string]any{"a": 1.5}}}}
	m, err := logformat.EncodeOrders(o)
	if err != nil {
		f.Fatal(err)
	}
	b, err := logformat.Marshal(m)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &pb.SiteOrders{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		read, err := logformat.DecodeOrders(m)
		if err != nil {
			return
		}
		if m, err = logformat.EncodeOrders(read); err != nil {
			t.Fatal(err)
		}
		again, err := logformat.DecodeOrders(m)
		if err != nil {
			t.Fatal(err)
		}
		if path := difference(reflect.ValueOf(read), reflect.ValueOf(again), "Orders"); path != "" {
			t.Errorf("%s differs: %+v became %+v", path, read, again)
		}
	})
}

// check expects that a value survives, and that its JSON survives to the byte. The audit log
// consists of this JSON, and must be the same on a voter that applied an entry and on a voter that
// restored a snapshot.
func check[T any, M proto.Message](t *testing.T, encode func(*T) (M, error), decode func(M) (*T, error)) {
	survives(t, encode, decode, func(t *rapid.T, in, out any) {
		before, err1 := json.Marshal(in)
		after, err2 := json.Marshal(out)
		if err1 != nil || err2 != nil || string(before) != string(after) {
			t.Fatalf("JSON before and after:\n%s\n%s\n%v %v", before, after, err1, err2)
		}
	})
}

// survives expects that random values of a type are the same after a conversion to bytes and back,
// and calls also with each value before and after.
func survives[T any, M proto.Message](t *testing.T, encode func(*T) (M, error), decode func(M) (*T, error), also func(t *rapid.T, in, out any)) {
	typ := reflect.TypeFor[T]()
	t.Run(typ.String(), func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			in := value(t, typ, nilWhenEmpty).Interface().(T)
			m, err := encode(&in)
			if err != nil {
				t.Fatal(err)
			}
			b, err := logformat.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			read := m.ProtoReflect().New().Interface().(M)
			if err := proto.Unmarshal(b, read); err != nil {
				t.Fatal(err)
			}
			out, err := decode(read)
			if err != nil {
				t.Fatal(err)
			}
			also(t, in, out)
			if path := difference(reflect.ValueOf(in), reflect.ValueOf(*out), typ.Name()); path != "" {
				t.Fatalf("%s differs: %+v became %+v", path, in, *out)
			}
		})
	})
}

// difference returns the path of the first field that differs, or "". An empty list or map equals
// nil.
func difference(a, b reflect.Value, path string) string {
	if a.Kind() != b.Kind() {
		return path
	}
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return path
			}
			return ""
		}
		return difference(a.Elem(), b.Elem(), path)
	case reflect.Struct:
		for i := range a.NumField() {
			if f := a.Type().Field(i); f.IsExported() {
				if d := difference(a.Field(i), b.Field(i), path+"."+f.Name); d != "" {
					return d
				}
			}
		}
		return ""
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return path
		}
		for i := range a.Len() {
			if d := difference(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Map:
		if a.Len() != b.Len() {
			return path
		}
		for _, k := range a.MapKeys() {
			other := b.MapIndex(k)
			if !other.IsValid() {
				return fmt.Sprintf("%s[%v]", path, k)
			}
			if d := difference(a.MapIndex(k), other, fmt.Sprintf("%s[%v]", path, k)); d != "" {
				return d
			}
		}
		return ""
	}
	if !a.Equal(b) {
		return path
	}
	return ""
}

// inJSON are the types that the log keeps as JSON. A test value of such a type is first encoded as
// JSON and decoded again.
var inJSON = []reflect.Type{reflect.TypeFor[model.ClusterTemplate](), reflect.TypeFor[model.Provider](), reflect.TypeFor[model.Service](),
	reflect.TypeFor[site.Document]()}

// presence is the form of a list or map without elements.
type presence uint8

const (
	nilWhenEmpty presence = iota // nil, because JSON leaves the field out
	neverNil                     // not nil, because JSON would show null
	either                       // nil or not: the message keeps the difference
)

func value(t *rapid.T, typ reflect.Type, empty presence) reflect.Value {
	out := reflect.New(typ).Elem()
	switch typ {
	case reflect.TypeFor[json.RawMessage]():
		b, _ := json.Marshal(someJSON(t, 2))
		out.SetBytes(b)
		return out
	case reflect.TypeFor[json.Number]():
		out.SetString(fmt.Sprint(rapid.IntRange(-9, 9).Draw(t, "number")))
		return out
	case reflect.TypeFor[profile.Kind]():
		out.SetString(string(rapid.SampledFrom(eventKinds()).Draw(t, "kind")))
		return out
	case reflect.TypeFor[tree.Kind]():
		out.SetUint(uint64(rapid.IntRange(0, int(tree.Batch)).Draw(t, "strategy")))
		return out
	}
	switch typ.Kind() {
	case reflect.String:
		out.SetString(rapid.StringN(0, 4, -1).Draw(t, "text"))
	case reflect.Bool:
		out.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int, reflect.Int64:
		out.SetInt(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "int"))
	case reflect.Int32:
		out.SetInt(int64(rapid.Int32().Draw(t, "int")))
	case reflect.Uint64:
		out.SetUint(rapid.Uint64().Draw(t, "uint"))
	case reflect.Uint32:
		out.SetUint(uint64(rapid.Uint32().Draw(t, "uint")))
	case reflect.Uint8:
		out.SetUint(uint64(rapid.Byte().Draw(t, "byte")))
	case reflect.Float64:
		out.SetFloat(rapid.Float64Range(-1e6, 1e6).Draw(t, "float"))
	case reflect.Interface:
		if v := someJSON(t, 2); v != nil {
			out.Set(reflect.ValueOf(v))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "given") {
			out.Set(reflect.New(typ.Elem()))
			out.Elem().Set(value(t, typ.Elem(), nilWhenEmpty))
		}
	case reflect.Slice:
		if n, ok := length(t, empty); ok {
			out.Set(reflect.MakeSlice(typ, n, n))
			for i := range n {
				out.Index(i).Set(value(t, typ.Elem(), neverNil))
			}
		}
	case reflect.Array:
		for i := range out.Len() {
			out.Index(i).Set(value(t, typ.Elem(), nilWhenEmpty))
		}
	case reflect.Map:
		if n, ok := length(t, empty); ok {
			out.Set(reflect.MakeMap(typ))
			for range n {
				out.SetMapIndex(value(t, typ.Key(), neverNil), value(t, typ.Elem(), neverNil))
			}
		}
	case reflect.Struct:
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.IsExported() && !slices.Contains(notStored, typ.Name()+"."+f.Name) {
				out.Field(i).Set(value(t, f.Type, presenceOf(typ, f)))
			}
		}
		if slices.Contains(inJSON, typ) {
			out = readBack(out)
		}
	default:
		t.Fatalf("no values of %s", typ)
	}
	return out
}

// presenceOf returns the form that a field has without elements, according to its JSON and its
// message.
func presenceOf(typ reflect.Type, f reflect.StructField) presence {
	both := []string{"Cluster.Services", "Cluster.Definitions", "Cluster.Config", "Target.Config", "Node.Services", "NodeGroup.Services"}
	switch tag, ok := f.Tag.Lookup("json"); {
	case slices.Contains(both, typ.Name()+"."+f.Name):
		return either
	case ok && strings.Contains(tag, "omit"):
		return nilWhenEmpty
	}
	return neverNil
}

// length draws the length of a list or map. It returns false for nil.
func length(t *rapid.T, empty presence) (int, bool) {
	n := rapid.IntRange(-1, 2).Draw(t, "length")
	switch empty {
	case nilWhenEmpty:
		return n, n > 0
	case neverNil:
		return max(n, 0), true
	default:
	}
	return n, n >= 0
}

func readBack(in reflect.Value) reflect.Value {
	for range 2 { // the second round keeps the values that a decoder fills in
		out := reflect.New(in.Type())
		b, err := json.Marshal(in.Interface())
		if err != nil || json.Unmarshal(b, out.Interface()) != nil {
			return reflect.Zero(in.Type())
		}
		in = out.Elem()
	}
	return in
}

func someJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "json") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return float64(rapid.IntRange(-9, 9).Draw(t, "number"))
	case 3:
		return rapid.StringN(0, 4, -1).Draw(t, "text")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 2).Draw(t, "length") {
			list = append(list, someJSON(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 2).Draw(t, "length") {
		object[rapid.StringN(0, 4, -1).Draw(t, "key")] = someJSON(t, depth-1)
	}
	return object
}

// TestMarshalRepairs expects that text which is not UTF-8 is repaired in the same way as in JSON.
func TestMarshalRepairs(t *testing.T) {
	bad := "cut \xe2\x82"
	h := model.NodeHealth{Node: bad, Paused: map[string]string{bad: bad}, Services: map[string]model.ServiceHealth{"s": {Message: bad}}}
	m, err := logformat.EncodeNodeHealth(&h)
	if err != nil {
		t.Fatal(err)
	}
	b, err := logformat.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Reset()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	got, err := logformat.DecodeNodeHealth(m)
	if err != nil {
		t.Fatal(err)
	}
	const good = "cut \ufffd"
	if got.Node != good || got.Paused[good] != good || got.Services["s"].Message != good || h.Node != bad {
		t.Errorf("%+v", got)
	}
}

// eventKinds returns the constants of profile.Kind from the source, so that the test fails for a
// new constant without a number in the log.
var eventKinds = sync.OnceValue(func() []profile.Kind {
	file, err := parser.ParseFile(token.NewFileSet(), "../../engine/profile/event.go", nil, 0)
	if err != nil {
		panic(err)
	}
	var out []profile.Kind
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Kind" {
				word, _ := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				out = append(out, profile.Kind(word))
			}
		}
		return true
	})
	return out
})
