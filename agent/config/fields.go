package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Field is a setting.
type Field struct {
	Path   string // as in YAML, such as http.addr
	Env    string // such as COOPR_HTTP_ADDR
	Flag   string // such as http-addr; empty: the setting has no flag
	Doc    string
	Bool   bool // a flag without a value means true
	Reload bool // SIGHUP changes it at once
	index  []int
}

// Fields returns all settings, in the order of the file. Commands create their flags from them.
func Fields() []Field {
	var out []Field
	walk(reflect.TypeFor[Config](), "", nil, func(path string, f reflect.StructField, index []int, leaf bool) {
		if !leaf {
			return
		}
		field := Field{
			Path: path, Env: envName(path), Flag: strings.NewReplacer(".", "-", "_", "-").Replace(path), Doc: f.Tag.Get("doc"),
			Bool: f.Type.Kind() == reflect.Bool, Reload: f.Tag.Get("reload") == "yes", index: index,
		}
		if f.Tag.Get("flag") == "-" {
			field.Flag = ""
		}
		out = append(out, field)
	})
	return out
}

const envPrefix = "COOPR_"

func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// walk visits the fields of Config, each section before its contents.
func walk(t reflect.Type, prefix string, index []int, visit func(path string, f reflect.StructField, index []int, leaf bool)) {
	for i := range t.NumField() {
		f := t.Field(i)
		path := f.Tag.Get("yaml")
		if prefix != "" {
			path = prefix + "." + path
		}
		at := append(append([]int(nil), index...), i)
		section := f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[Secret]()
		visit(path, f, at, !section)
		if section {
			walk(f.Type, path, at, visit)
		}
	}
}

// setText sets a value from the text of a flag, of an environment variable or of a YAML scalar.
func setText(v reflect.Value, text string) error {
	switch v.Interface().(type) {
	case Secret:
		v.Set(reflect.ValueOf(NewSecret(strings.TrimSpace(text))))
		return nil
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration: write it as 500ms, 30s or 2m", text)
		}
		v.Set(reflect.ValueOf(d))
		return nil
	case Size:
		size, err := parseSize(text)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(size))
		return nil
	case []string:
		var list []string
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		v.Set(reflect.ValueOf(list))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(n)
	default:
		return fmt.Errorf("this setting can only be set in a file")
	}
	return nil
}
