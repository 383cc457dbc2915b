package decode

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/coopr/coopr/internal/words"
)

// unknownKey returns the message for an unknown key of a struct, with the nearest known key,
// or with the place one level down where the key belongs.
func unknownKey(key string, t reflect.Type) string {
	keys := keysOf(t)
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	sort.Strings(names)
	if near := words.Nearest(key, names); near != "" {
		return fmt.Sprintf("unknown key: did you mean %q?", near)
	}
	for _, name := range names {
		inner := t.FieldByIndex(keys[name]).Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			if _, ok := keysOf(inner)[key]; ok {
				return fmt.Sprintf("unknown key: it belongs under %q", name)
			}
		}
	}
	return fmt.Sprintf("unknown key: it must be one of %s", strings.Join(names, ", "))
}
