package plan

import (
	"reflect"
	"testing"

	"github.com/coopr/coopr/engine/model"
)

// TestNoteReadsBack writes a note with every field set, so that a field that a
// Note or an Attempt gains and the encoding lacks fails here.
func TestNoteReadsBack(t *testing.T) {
	b := NewBuilder([]string{"n"}, nil)
	b.Task(model.Create, 0, None)
	g, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	n := &Note{History: make([]Attempt, 2)}
	next := int64(1)
	set := func(v reflect.Value) {
		for i := range v.NumField() {
			next++
			switch f := v.Field(i); f.Kind() {
			case reflect.Int, reflect.Int64:
				f.SetInt(next)
			case reflect.Uint64:
				f.SetUint(uint64(next))
			case reflect.String:
				f.SetString(string(rune('a' + next)))
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Slice:
			default:
				t.Fatalf("a field is a %s", f.Type())
			}
		}
	}
	set(reflect.ValueOf(n).Elem())
	for i := range n.History {
		set(reflect.ValueOf(&n.History[i]).Elem())
	}
	e := NewState(g).Edit()
	e.next.notes.own(0, 0)[0] = n
	s, err := DecodeState(g, e.Done().Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Note(0); !reflect.DeepEqual(got, n) {
		t.Errorf("%+v, want %+v", got, n)
	}
}
