package model

import (
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// Nearest gives the known name that the given one was most likely meant to be,
// and "" when none is near: by the letters to
// change (Levenshtein's distance, with swaps), in any case.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	sorted := slices.Sorted(slices.Values(known))
	for _, k := range sorted {
		if k == name || k == "" {
			continue
		}
		if diff := distance(strings.ToLower(name), strings.ToLower(k), least); diff < least {
			best, least = k, diff
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with the next
// to make b of a; it stops counting at limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			cost = min(cost, row[j]+1, last[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				cost = min(cost, before[j-1]+1)
			}
			row[j+1] = cost
			least = min(least, cost)
		}
		if least > limit {
			return limit
		}
	}
	return min(row[len(b)], limit)
}

// didYouMean gives ": did you mean x?", or nothing.
func didYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return fmt.Sprintf(": did you mean %q?", near)
	}
	return ""
}

// unknownKey says that a struct has no such key, with the nearest one, or with
// the place one level down where the key does belong.
func unknownKey(key string, t reflect.Type) string {
	keys := keysOf(t)
	names := make([]string, 0, len(keys))
	for k := range keys {
		names = append(names, k)
	}
	sort.Strings(names)
	if near := Nearest(key, names); near != "" {
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
