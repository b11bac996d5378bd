package cel

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"

	expr "cel.dev/expr"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// tagged is a value with the name of its type before it, as the program writes it.
func tagged(v ref.Val) any {
	switch t := v.(type) {
	case types.Null:
		return []any{"null", nil}
	case types.Bool:
		return []any{"bool", bool(t)}
	case types.Int:
		return []any{"int", strconv.FormatInt(int64(t), 10)}
	case types.Uint:
		return []any{"uint", strconv.FormatUint(uint64(t), 10)}
	case types.Double:
		return []any{"double", double(float64(t))}
	case types.String:
		return []any{"string", string(t)}
	case types.Bytes:
		return []any{"bytes", base64.StdEncoding.EncodeToString(t)}
	case types.Timestamp:
		return []any{"timestamp", string(t.ConvertToType(types.StringType).(types.String))}
	case types.Duration:
		return []any{"duration", string(t.ConvertToType(types.StringType).(types.String))}
	case *types.Optional:
		if t.HasValue() {
			return []any{"optional", tagged(t.GetValue())}
		}
		return []any{"optional", nil}
	case traits.Lister:
		items := []any{}
		for it := t.Iterator(); it.HasNext() == types.True; {
			items = append(items, tagged(it.Next()))
		}
		return []any{"list", items}
	case traits.Mapper:
		entries := []any{}
		for it := t.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			entries = append(entries, []any{tagged(key), tagged(t.Get(key))})
		}
		return []any{"map", entries}
	case ref.Type:
		return []any{"type", t.TypeName()}
	case *types.Err:
		return []any{"error", t.Error()}
	}
	return []any{"extension", v.Type().TypeName()}
}

// double is a double by its bits.
func double(number float64) string {
	if math.IsNaN(number) {
		return "nan"
	}
	return fmt.Sprintf("%016x", math.Float64bits(number))
}

// sorted is a tagged value with the entries of its maps in the order of their keys.
func sorted(v any) any {
	pair, ok := v.([]any)
	if !ok || len(pair) != 2 {
		return v
	}
	parts, _ := pair[1].([]any)
	switch pair[0] {
	case "list":
		items := []any{}
		for _, item := range parts {
			items = append(items, sorted(item))
		}
		return []any{"list", items}
	case "optional":
		return []any{"optional", sorted(pair[1])}
	case "map":
		entries := []any{}
		for _, entry := range parts {
			kv, ok := entry.([]any)
			if !ok || len(kv) != 2 {
				return v
			}
			entries = append(entries, []any{sorted(kv[0]), sorted(kv[1])})
		}
		sort.Slice(entries, func(i, j int) bool { return text(entries[i]) < text(entries[j]) })
		return []any{"map", entries}
	}
	return v
}

func text(v any) string {
	out, _ := json.Marshal(v)
	return string(out)
}

// expected is the tagged value that a conformance test expects; false of messages, of which there are none.
func expected(v *expr.Value) (any, bool) {
	switch kind := v.Kind.(type) {
	case *expr.Value_NullValue:
		return []any{"null", nil}, true
	case *expr.Value_BoolValue:
		return []any{"bool", kind.BoolValue}, true
	case *expr.Value_Int64Value:
		return []any{"int", strconv.FormatInt(kind.Int64Value, 10)}, true
	case *expr.Value_Uint64Value:
		return []any{"uint", strconv.FormatUint(kind.Uint64Value, 10)}, true
	case *expr.Value_DoubleValue:
		return []any{"double", double(kind.DoubleValue)}, true
	case *expr.Value_StringValue:
		return []any{"string", kind.StringValue}, true
	case *expr.Value_BytesValue:
		return []any{"bytes", base64.StdEncoding.EncodeToString(kind.BytesValue)}, true
	case *expr.Value_TypeValue:
		return []any{"type", kind.TypeValue}, true
	case *expr.Value_ListValue:
		items := []any{}
		for _, item := range kind.ListValue.Values {
			one, ok := expected(item)
			if !ok {
				return nil, false
			}
			items = append(items, one)
		}
		return []any{"list", items}, true
	case *expr.Value_MapValue:
		entries := []any{}
		for _, entry := range kind.MapValue.Entries {
			key, ok := expected(entry.Key)
			value, also := expected(entry.Value)
			if !ok || !also {
				return nil, false
			}
			entries = append(entries, []any{key, value})
		}
		return []any{"map", entries}, true
	}
	return nil, false
}

// literal is an expression that makes a value.
func literal(v *expr.Value) (string, error) {
	switch kind := v.Kind.(type) {
	case *expr.Value_NullValue:
		return "null", nil
	case *expr.Value_BoolValue:
		return strconv.FormatBool(kind.BoolValue), nil
	case *expr.Value_Int64Value:
		return strconv.FormatInt(kind.Int64Value, 10), nil
	case *expr.Value_Uint64Value:
		return strconv.FormatUint(kind.Uint64Value, 10) + "u", nil
	case *expr.Value_DoubleValue:
		return fmt.Sprintf("double('%g')", kind.DoubleValue), nil
	case *expr.Value_StringValue:
		return strconv.Quote(kind.StringValue), nil
	case *expr.Value_TypeValue:
		return kind.TypeValue, nil
	case *expr.Value_ListValue:
		var items []string
		for _, item := range kind.ListValue.Values {
			one, err := literal(item)
			if err != nil {
				return "", err
			}
			items = append(items, "dyn("+one+")")
		}
		return "[" + strings.Join(items, ", ") + "]", nil
	case *expr.Value_MapValue:
		var entries []string
		for _, entry := range kind.MapValue.Entries {
			key, err := literal(entry.Key)
			if err != nil {
				return "", err
			}
			value, err := literal(entry.Value)
			if err != nil {
				return "", err
			}
			entries = append(entries, "dyn("+key+"): dyn("+value+")")
		}
		return "{" + strings.Join(entries, ", ") + "}", nil
	}
	return "", fmt.Errorf("no literal of %T", v.Kind)
}
