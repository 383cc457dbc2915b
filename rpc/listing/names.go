package listing

import "reflect"

// deepest bounds the names that Names returns: a field of a field of a row.
const deepest = 2

// Names returns the fields of rows of a type by which a list can be filtered or, if sorts is set, sorted, in the order of their names. Of
// objects it returns the fields, two levels deep at most; the name of an object with any keys, such as labels, ends in a point. It leaves
// out what may have any form.
func Names(row reflect.Type, sorts bool) []string {
	if row.Kind() == reflect.String {
		return []string{TextField}
	}
	return appendNames(nil, row, "", deepest, sorts)
}

func appendNames(out []string, t reflect.Type, name string, levels int, sorts bool) []string {
	for t.Kind() == reflect.Pointer || (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) && !sorts && !marshals(t) {
		t = t.Elem()
	}
	switch {
	case marshals(t):
		return append(out, name)
	case t.Kind() == reflect.Struct && levels > 0:
		fields := fieldsOf(t)
		for _, part := range names(fields) {
			full := part
			if name != "" {
				full = name + "." + part
			}
			out = appendNames(out, t.FieldByIndex(fields[part]).Type, full, levels-1, sorts)
		}
		return out
	case t.Kind() == reflect.Map && name != "" && t.Elem().Kind() == reflect.String:
		return append(out, name+".")
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array, reflect.Interface:
		return out
	}
	return append(out, name)
}
