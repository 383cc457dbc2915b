package logformat

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Marshal encodes a message of the log or of a snapshot. Equal messages have equal bytes. Text that
// is not UTF-8, such as a message that was cut within a character, is repaired first, so that a
// snapshot does not fail because of it.
func Marshal(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil {
		return b, nil
	}
	m = proto.Clone(m)
	repair(m.ProtoReflect())
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// repair replaces the invalid bytes in all texts of a message.
func repair(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			repairMap(f, v.Map())
		case f.IsList():
			for i := range v.List().Len() {
				if x, ok := repaired(f, v.List().Get(i)); ok {
					v.List().Set(i, x)
				}
			}
		default:
			if x, ok := repaired(f, v); ok {
				m.Set(f, x)
			}
		}
		return true
	})
}

func repairMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	type pair struct {
		old, key protoreflect.MapKey
		value    protoreflect.Value
	}
	var wrong []pair
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		key, bad := repaired(f.MapKey(), k.Value())
		value, worse := repaired(f.MapValue(), v)
		if bad || worse {
			wrong = append(wrong, pair{k, key.MapKey(), value})
		}
		return true
	})
	for _, p := range wrong {
		m.Clear(p.old)
		m.Set(p.key, p.value)
	}
}

// repaired returns a text as valid UTF-8, and reports whether the text changed. It repairs a
// message in place.
func repaired(f protoreflect.FieldDescriptor, v protoreflect.Value) (protoreflect.Value, bool) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		repair(v.Message())
	case protoreflect.StringKind:
		if s := v.String(); !utf8.ValidString(s) {
			return protoreflect.ValueOfString(strings.ToValidUTF8(s, string(utf8.RuneError))), true
		}
	default:
	}
	return v, false
}
