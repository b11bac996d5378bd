package cel

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

// depth is how deep random expressions are nested.
const depth = 4

// templates are the ways to make an expression of a type. `«type»` is an expression of that type, `«type|@1:int»` one
// in which the variable @1 of the template has the type int.
var templates = map[string][]string{
	"bool": {
		"true", "false", "self.b", "has(self.s)", "has(self.o.a)", "has(self.lo)", "has(x.a)", "has(x.none)", "has(self.n)",
		"!«bool»", "«bool» && «bool»", "«bool» || «bool»", "«bool» ? «bool» : «bool»",
		"«int» < «int»", "«int» <= «int»", "«double» > «double»", "«uint» >= «uint»", "«string» < «string»", "«bytes» <= «bytes»",
		"«timestamp» < «timestamp»", "«duration» >= «duration»", "«int» < «double»", "«uint» > «int»", "«double» <= «uint»",
		"«int» == «int»", "«string» != «string»", "«list(int)» == «list(int)»", "«list(string)» != «list(string)»", "«dyn» == «dyn»",
		"«dyn» == «int»", "«map(string, int)» == «map(string, int)»", "«timestamp» == «timestamp»", "«type» == «type»", "self.o == self.o",
		"self.lo == self.lo", "self.ls == «list(string)»", "«optional(int)» == «optional(int)»",
		"«int» in «list(int)»", "«string» in «list(string)»", "«string» in «map(string, int)»", "«dyn» in «list(int)»", "'a' in ['a', 'b', «string»]",
		"«string».contains(«string»)", "«string».startsWith(«string»)", "«string».endsWith(«string»)",
		"«string».matches('[a-c]+')", "«string».matches(«string»)", "«string».matches('^«word»$')", "matches(«string», 'b.*')",
		"«list(int)».all(@1, «bool|@1:int»)", "«list(string)».exists(@1, «bool|@1:string»)", "«list(int)».exists_one(@1, «bool|@1:int»)",
		"self.lo.all(@1, «bool|@1:object»)", "self.m.all(@1, «bool|@1:string»)", "self.mi.exists(@1, @2, «bool|@1:string,@2:int»)",
		"«list(int)».all(@1, @2, «bool|@1:int,@2:int»)", "«list(string)».exists(@1, @2, «bool|@1:int,@2:string»)",
		"«list(string)».existsOne(@1, @2, «bool|@1:int,@2:string»)", "self.lo.exists(@1, @2, «bool|@1:int,@2:object»)",
		"«list(int)».isSorted()", "«list(string)».isSorted()", "sets.contains(«list(int)», «list(int)»)",
		"sets.intersects(«list(string)», «list(string)»)", "sets.equivalent(«list(int)», «list(int)»)",
		"bool(«string»)", "«optional(int)».hasValue()", "«optional(string)».hasValue()", "isURL(«string»)", "isQuantity(«string»)", "isIP(«string»)",
		"isCIDR(«string»)", "isSemver(«string»)", "isSemver(«string», true)", "«quantity».isGreaterThan(«quantity»)", "«quantity».isLessThan(«quantity»)",
		"«quantity» == «quantity»", "«quantity».isInteger()", "«ip».isLoopback()", "«ip».isUnspecified()", "«ip».isGlobalUnicast()",
		"«ip» == «ip»", "«cidr».containsIP(«ip»)", "«cidr».containsIP(«string»)", "«cidr».containsCIDR(«cidr»)", "«cidr».containsCIDR(«string»)",
		"ip.isCanonical(«string»)", "«cidr» == «cidr»", "«semver».isLessThan(«semver»)", "«semver» == «semver»", "«url» == «url»",
		"«format».validate(«string»).hasValue()", "type(«dyn») == «type»", "self.io == «int»", "self.io == «string»",
		"«semver».isGreaterThan(«semver»)", "«ip».isLinkLocalMulticast()", "«ip».isLinkLocalUnicast()", "«bytes» == «bytes»", "«double» == «int»",
		"«uint» in [«uint», 1u]", "«dyn» in «dyn»", "[«double», «double»].isSorted()", "[«timestamp», «timestamp»].isSorted()", "sets.contains([«dyn»], [«dyn»])",
		"sets.equivalent([«bytes»], [«bytes», «bytes»])", "[«quantity»] == [«quantity»]", "[«double»] == [«double»]", "x.l.exists(@1, «bool|@1:dyn»)",
		"x.l.all(@1, @2, «bool|@1:dyn,@2:dyn»)", "«duration» == «duration»", "«dyn».contains(«string»)", "«dyn».matches(«string»)", "«optional(string)» != «optional(string)»",
		"{«int»: «string»}[«int»] == «string»", "{true: 1}[!«bool»] == 1", "{«uint»: 1}[«dyn»] == 1", "{1: 2, «int»: «int»} == {2: 1, «int»: «int»}", "has({'a': «int»}.a)",
		"{'a': «int»}.a == {'b': «int»}.b", "«int» in {«int»: «bool»}", "«map(string, int)».exists(@1, @2, «bool|@1:string,@2:int»)", "has(self.?o.a) != true", "has(x.a.b.c)",
		"«bool» && (x.a || «bool»)", "x.t || «dyn»", "!«dyn»", "«dyn» ? «bool» : «bool»", "«list(string)» == «dyn»", "«map(string, int)» == «dyn»", "«optional(int)» == «dyn»",
	},
	"int": {
		"0", "1", "-1", "3", "9223372036854775807", "-9223372036854775808", "self.i", "self.i", "self.o.a", "n", "x.n", "x.a.b", "self.none",
		"«int» + «int»", "«int» - «int»", "«int» * «int»", "«int» / «int»", "«int» % «int»", "-«int»", "-(«int»)",
		"«bool» ? «int» : «int»", "«list(int)»[«int»]", "self.li[«int»]", "self.mi[«string»]", "«map(string, int)»[«string»]", "self.lo[«int»].n",
		"size(«string»)", "size(«list(int)»)", "«list(string)».size()", "«bytes».size()", "self.m.size()", "self.lo.size()", "size(self.mi)",
		"int(«uint»)", "int(«double»)", "int(«string»)", "int(«timestamp»)", "int(«duration»)", "«string».indexOf(«string»)",
		"«string».indexOf(«string», «int»)", "«string».lastIndexOf(«string»)", "«string».lastIndexOf(«string», «int»)",
		"«list(int)».indexOf(«int»)", "«list(string)».lastIndexOf(«string»)", "«list(int)».sum()", "«list(int)».max()", "«list(int)».min()",
		"«timestamp».getFullYear()", "«timestamp».getMonth()", "«timestamp».getDayOfWeek()", "«timestamp».getDate()", "«timestamp».getHours('+02:00')",
		"«timestamp».getDayOfYear('America/New_York')", "«timestamp».getMilliseconds()", "«duration».getHours()", "«duration».getMinutes()",
		"«duration».getSeconds()", "«duration».getMilliseconds()", "«optional(int)».orValue(«int»)", "«optional(int)».value()",
		"«quantity».asInteger()", "«quantity».sign()", "«quantity».compareTo(«quantity»)", "«ip».family()", "«cidr».prefixLength()",
		"«semver».major()", "«semver».minor()", "«semver».compareTo(«semver»)", "self.io", "self.by.size()", "«string».find('a+').size()",
		"«semver».patch()", "«timestamp».getDayOfMonth()", "«timestamp».getSeconds('Europe/Berlin')", "«timestamp».getMinutes(«string»)", "self.ls.indexOf(«string»)",
		"«dyn».size()", "size(«dyn»)", "[[«list(int)»], [[«int»]]].flatten(«small»).size()", "int(«dyn»)", "[«int», «int»].sort()[0]", "[«duration», «duration»].max().getSeconds()",
		"[«bytes», «bytes»].min().size()", "[«bool», «bool»].sort().size()", "[[«int»], «list(int)»].distinct().size()", "[«dyn»].distinct().size()", "[«double», 1.5].indexOf(1.5)",
		"«dyn» + «int»", "«dyn» * «dyn»", "«dyn».n", "«dyn»[«dyn»]", "[«dyn», «dyn»][«int»]", "{«string»: «dyn», 'z': «dyn»}[«string»]", "[«uint», 3u].sum() > 3u ? 1 : 0",
	},
	"uint":   {"0u", "7u", "18446744073709551615u", "«uint» + «uint»", "«uint» - «uint»", "«uint» * «uint»", "«uint» / «uint»", "«uint» % «uint»", "uint(«int»)", "uint(«double»)", "uint(«string»)"},
	"double": {"0.0", "1.5", "-2.25", "1e300", "1e-7", "self.d", "x.f", "«double» + «double»", "«double» - «double»", "«double» * «double»", "«double» / «double»", "-(«double»)", "double(«int»)", "double(«uint»)", "double(«string»)", "[«double», «double»].sum()", "«quantity».asApproximateFloat()", "double('NaN')", "double('-Infinity')"},
	"string": {
		"''", "'a'", "'abc'", "'1'", "'Ünï☺'", `'\n"\\'`, "self.s", "self.s", "self.e", "self.n", "self.o.s", "s", "x.s", "self.io", "'192.168.0.1'", "'10.0.0.0/8'", "'1.2.3'", "'https://a.b:80/c?d=e'", "'100Mi'", "'2020-01-01T00:00:00Z'",
		"«string» + «string»", "«bool» ? «string» : «string»", "«list(string)»[«int»]", "self.m['k']", "self.m[«string»]", "self.lo[«int»].name",
		"string(«int»)", "string(«uint»)", "string(«double»)", "string(«bool»)", "string(«bytes»)", "string(«timestamp»)", "string(«duration»)",
		"«string».charAt(«int»)", "«string».lowerAscii()", "«string».upperAscii()", "«string».trim()", "«string».substring(«int»)",
		"«string».substring(«int», «int»)", "«string».replace(«string», «string»)", "«string».replace(«string», «string», «int»)", "«list(string)».join()",
		"«list(string)».join(«string»)", "strings.quote(«string»)", "'%s %d'.format([«string», «int»])", "'%f|%e'.format([«double», «double»])",
		"'%.2f %b %x %X %o'.format([«double», «int», «string», «bytes», «uint»])", "'%s'.format([«list(int)»])", "'%s %s'.format([«timestamp», «dyn»])",
		"'%s'.format([«map(string, int)»])", "'%d%%'.format([«dyn»])", "«string».format([«dyn»])", "«string».find(«string»)", "«string».find('[0-9]+')",
		"«optional(string)».orValue(«string»)", "«list(string)».max()", "«list(string)».min()", "«url».getHost()", "«url».getScheme()", "«url».getPort()",
		"«url».getEscapedPath()", "'%s %s %s'.format([«dyn», null, «type»])", "'%.0f %.3e %d'.format([«double», «double», «uint»])", "'%x %X'.format([«dyn», «int»])",
		"'%s'.format([{«int»: [«double», «duration»], «int»: [b'a', «bool»]}])", "'%o %b'.format([«int», «dyn»])", "string(«dyn»)", "«dyn» + «string»", "[«list(string)», [«string»]].flatten().join('/')",
		"«url».getQuery().map(@1, @1).join('&')", "«format».validate(«string»).orValue(['fine']).join(';')", "«dyn».join('-')", "«dyn».lowerAscii()", "string(«ip»)", "string(«cidr»)", "self.lo.map(@1, «string|@1:object»).join(',')", "«url».getHostname()",
	},
	"bytes": {"b''", "b'abc'", `b'\xff\x00'`, "self.by", "bytes(«string»)", "«bytes» + «bytes»"},
	"list(int)": {
		"[]", "[1, 2, 3]", "self.li", "self.li", "l", "[«int»]", "[«int», «int»]", "[?«optional(int)», «int»]", "«list(int)» + «list(int)»", "«bool» ? «list(int)» : «list(int)»",
		"«list(int)».filter(@1, «bool|@1:int»)", "«list(int)».map(@1, «int|@1:int»)", "«list(int)».map(@1, «bool|@1:int», «int|@1:int»)",
		"«list(string)».map(@1, «int|@1:string»)", "self.lo.map(@1, «int|@1:object»)", "«list(int)».sort()", "«list(int)».reverse()", "«list(int)».distinct()",
		"«list(int)».slice(«int», «int»)", "«list(int)».slice(0, 1)", "lists.range(«small»)", "[«list(int)», «list(int)»].flatten()", "«list(int)».sortBy(@1, «int|@1:int»)",
		"«list(int)».transformList(@1, @2, «int|@1:int,@2:int»)", "«list(int)».transformList(@1, @2, «bool|@1:int,@2:int», «int|@1:int,@2:int»)",
		"optional.unwrap([«optional(int)», «optional(int)»])", "[«optional(int)»].unwrapOpt()", "self.mi.map(@1, self.mi[@1])", "self.mi.transformList(@1, @2, «int|@1:string,@2:int»)",
		"«list(int)».sortBy(@1, «double|@1:int»)", "dyn(«list(int)»).map(@1, «int|@1:dyn»)", "dyn(«map(string, int)»).map(@1, «int|@1:dyn»)", "«dyn».sort()", "«dyn».reverse()", "dyn(«list(string)»).filter(@1, «bool|@1:dyn»)", "[«uint», «uint»].map(@1, int(@1))", "[«dyn», «dyn»].flatten()",
	},
	"list(string)": {
		"['a', 'b']", "self.ls", "self.ls", "[«string»]", "[«string», «string», «string»]", "«list(string)» + «list(string)»", "«string».split(«string»)", "«string».split('', «int»)",
		"«string».split(',')", "«list(string)».filter(@1, «bool|@1:string»)", "«list(int)».map(@1, «string|@1:int»)", "self.m.map(@1, @1)", "«list(string)».sort()",
		"«list(string)».distinct()", "«string».findAll('[a-z]')", "«string».findAll(«string», «int»)", "«list(string)».sortBy(@1, «string|@1:string»)",
		"«list(string)».reverse()", "self.lo.map(@1, @1.name)", "[«optional(string)»].unwrapOpt()", "self.m.transformList(@1, @2, @1 + @2)", "«url».getQuery()['d']",
	},
	"map(string, int)": {
		"{'k': 1}", "{'k': «int»}", "{«string»: «int»}", "self.mi", "self.mi", "{?'k': «optional(int)»}", "«bool» ? «map(string, int)» : «map(string, int)»",
		"self.mi.transformMap(@1, @2, «int|@1:string,@2:int»)", "self.mi.transformMapEntry(@1, @2, {«string|@1:string,@2:int»: @2})", "«map(string, int)».transformMap(@1, @2, @2 > 1, «int|@1:string,@2:int»)",
		"['a'].transformMapEntry(@1, @2, {@2: «int|@1:int,@2:string»})",
	},
	"timestamp":        {"self.ts", "self.date", "timestamp('2020-02-29T23:59:59.5Z')", "timestamp('9999-12-31T23:59:59Z')", "timestamp(«string»)", "timestamp(«int»)", "«timestamp» + «duration»", "«timestamp» - «duration»", "«duration» + «timestamp»"},
	"duration":         {"self.du", "duration('1h30m')", "duration('-1.5s')", "duration('2562047h')", "duration(«string»)", "«duration» + «duration»", "«duration» - «duration»", "«timestamp» - «timestamp»", "[«duration», «duration»].sum()"},
	"optional(int)":    {"optional.of(«int»)", "optional.none()", "optional.ofNonZeroValue(«int»)", "self.?i", "self.o.?a", "self.?o.a", "self.li[?«int»]", "x.?n", "x.?none.n", "self.mi[?«string»]", "«optional(int)».or(«optional(int)»)", "«optional(int)».optMap(@1, «int|@1:int»)", "«optional(int)».optFlatMap(@1, «optional(int)|@1:int»)", "«list(int)».first()", "«list(int)».last()", "self.?lo.optMap(@1, @1.size())", "self.lo[?0].?n", "{'a': «int»}[?«string»]", "«dyn».?n", "x.?a.?b", "[«int»][?«int»]", "{«int»: «int»}[?«int»]"},
	"optional(string)": {"optional.of(«string»)", "self.?s", "self.?n", "self.lo[?«int»].name", "self.m[?«string»]", "self.ls[?0]", "«list(string)».first()", "«optional(int)».optMap(@1, «string|@1:int»)", "optional.ofNonZeroValue(«string»)", "x.?s", "self.?lo[?0].?name", "{'a': «string»}[?«string»]", "optional.of(«optional(string)»).value()", "self.m.?k.or(self.?o.?s)"},
	"dyn":              {"x", "x.a", "x.l", "x.z", "x.t", "x.none", "x.l[0]", "x.l[«int»]", "x['s']", "x[«string»]", "dyn(«int»)", "dyn(«string»)", "dyn(«double»)", "dyn(«list(int)»)", "dyn(«bool»)", "dyn(null)", "self.io", "null", "dyn(«uint»)", "self.lo", "self.o", "self.x", "[«dyn»]", "x.a.b", "x.l.map(@1, «dyn|@1:dyn»)", "dyn(«timestamp»)", "dyn(«bytes»)", "dyn(«duration»)", "dyn(«optional(int)»)", "dyn(«map(string, int)»)", "dyn(«quantity»)", "dyn(«type»)", "«dyn».a", "x.?a"},
	"type":             {"int", "string", "list", "map", "bool", "null_type", "type(«int»)", "type(«dyn»)", "type(«list(string)»)", "type(self.o)", "type(«timestamp»)", "type(«quantity»)", "type(type(1))"},
	"quantity":         {"quantity('1')", "quantity('100Mi')", "quantity('1.5')", "quantity('200m')", "quantity(«string»)", "«quantity».add(«quantity»)", "«quantity».sub(«quantity»)", "«quantity».add(«small»)", "«quantity».sub(«int»)"},
	"ip":               {"ip('127.0.0.1')", "ip('2001:db8::1')", "ip(«string»)", "«cidr».ip()"},
	"cidr":             {"cidr('10.0.0.0/8')", "cidr('2001:db8::/32')", "cidr('192.168.1.5/24')", "cidr(«string»)", "«cidr».masked()"},
	"url":              {"url('https://example.com:8080/p/a?d=1&d=2')", "url(«string»)", "url('/a/b')"},
	"semver":           {"semver('1.2.3')", "semver('1.0.0-alpha.1')", "semver(«string»)", "semver('v1.2', true)"},
	"format":           {"format.dns1123Label()", "format.uuid()", "format.date()", "format.named('qualifiedName').value()", "format.uri()", "format.dns1123Subdomain()", "format.dns1035Label()", "format.qualifiedName()", "format.dns1123LabelPrefix()", "format.dns1123SubdomainPrefix()", "format.dns1035LabelPrefix()", "format.labelValue()", "format.byte()", "format.datetime()", "format.named(«string»).value()"},
	"small":            {"0", "1", "3", "5"},
	"word":             {"a", "ab*", "(b|c)", "[x-z]{2}", ".*", "(", "a{1001}", `\\d`, `\\141`, `\\Q.\\E`, "[[:alpha:]]+", "(?i)AB", `\\pL`, "(?P<n>a)", "a{2,1}", `\\x{61}`, "(?s).", "a**", "[b-a]", `\\C`, "(?U)a+", "[^a]", `\\ `},
}

// leaves are what variables of a type give.
var leaves = map[string]map[string][]string{
	"object": {"int": {"%s.n", "%s.?n.orValue(1)"}, "string": {"%s.name"}, "bool": {"has(%s.n)"}},
}

var hole = regexp.MustCompile(`«([^»|]*)(?:\|([^»]*))?»`)

// generator makes random expressions.
type generator struct {
	*rand.Rand
	// fresh counts the variables of comprehensions.
	fresh int
}

// scoped is a variable of a comprehension.
type scoped struct{ name, ty string }

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// expr is a random expression of a type, as deep as may be.
func (g *generator) expr(ty string, depth int, scope []scoped) string {
	if len(scope) > 0 && g.IntN(3) == 0 {
		if found := g.variable(ty, scope); found != "" {
			return found
		}
	}
	// Now and then an expression is not of its type.
	if ty != "small" && ty != "word" && g.IntN(60) == 0 {
		ty = pick(g, []string{"int", "string", "bool", "dyn", "list(int)"})
	}
	choices := templates[ty]
	if depth <= 0 {
		var plain []string
		for _, one := range choices {
			if !strings.Contains(one, "«") {
				plain = append(plain, one)
			}
		}
		if len(plain) > 0 {
			choices = plain
		}
	}
	template := pick(g, choices)
	for _, name := range []string{"@1", "@2"} {
		if strings.Contains(template, name) {
			g.fresh++
			template = strings.ReplaceAll(template, name, fmt.Sprintf("v%d", g.fresh))
		}
	}
	filled := hole.ReplaceAllStringFunc(template, func(found string) string {
		parts := hole.FindStringSubmatch(found)
		inner := append([]scoped{}, scope...)
		for _, variable := range strings.Split(parts[2], ",") {
			if name, ty, ok := strings.Cut(variable, ":"); ok {
				inner = append(inner, scoped{name, ty})
			}
		}
		return g.expr(parts[1], depth-1, inner)
	})
	// Operators are now and then not put in parentheses; a conditional always is, and nothing else begins like one.
	if strings.Contains(template, "» ? ") || strings.ContainsAny(filled, " ?") && !strings.HasSuffix(filled, ")") && template != filled {
		return "(" + filled + ")"
	}
	return filled
}

// variable is an expression of a type by a variable of a comprehension; empty if none gives one.
func (g *generator) variable(ty string, scope []scoped) string {
	var found []string
	for _, variable := range scope {
		if variable.ty == ty {
			found = append(found, variable.name)
		}
		for _, leaf := range leaves[variable.ty][ty] {
			found = append(found, fmt.Sprintf(leaf, variable.name))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return pick(g, found)
}

// bound sets a bound of a schema, or none.
func (g *generator) bound(schema map[string]any, name string, most int) map[string]any {
	if g.IntN(2) == 0 {
		schema[name] = g.IntN(most) + 3
	}
	return schema
}

// schema is a random schema of `self`: always with the same fields, of different bounds.
func (g *generator) schema() map[string]any {
	text := func() map[string]any { return g.bound(map[string]any{"type": "string"}, "maxLength", 40) }
	formatted := func(format string) map[string]any { return map[string]any{"type": "string", "format": format} }
	number := func() map[string]any { return map[string]any{"type": "integer", "format": "int64"} }
	list := func(items map[string]any) map[string]any {
		return g.bound(map[string]any{"type": "array", "items": items}, "maxItems", 20)
	}
	entries := func(values map[string]any) map[string]any {
		return g.bound(map[string]any{"type": "object", "additionalProperties": values}, "maxProperties", 20)
	}
	object := func(properties map[string]any, required ...string) map[string]any {
		return map[string]any{"type": "object", "properties": properties, "required": required}
	}
	texts := list(text())
	if g.IntN(2) == 0 {
		texts["x-kubernetes-list-type"] = "set"
	}
	objects := list(object(map[string]any{"name": text(), "n": number()}, "name"))
	if g.IntN(2) == 0 {
		objects["x-kubernetes-list-type"] = "map"
		objects["x-kubernetes-list-map-keys"] = []string{"name"}
	}
	nullable := text()
	nullable["nullable"] = true
	listed := text()
	listed["enum"] = []string{"a", "abc", "1"}
	return object(map[string]any{
		"i": number(), "d": map[string]any{"type": "number"}, "s": text(), "b": map[string]any{"type": "boolean"},
		"by": formatted("byte"), "ts": formatted("date-time"), "date": formatted("date"), "du": formatted("duration"),
		"li": list(number()), "ls": texts, "lo": objects, "m": entries(text()), "mi": entries(number()),
		"o": object(map[string]any{"a": number(), "s": text(), "in": number(), "a-b": text()}, "s"), "n": nullable, "e": listed,
		"io": map[string]any{"x-kubernetes-int-or-string": true},
		"x":  map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
	}, "i", "s")
}

// object is a random object of the schema. Its maps have one entry at most: cel-go goes through them in any order.
func (g *generator) object() map[string]any {
	texts := []string{"", "a", "b", "abc", "a,b", "Ünï☺", "192.168.0.1", "10.1.0.0/16", "1.2.3", "0x1f", "k", "100m", "https://u@h/p?d=2"}
	numbers := []int64{0, 1, 2, 5, -3, 1 << 40, -1 << 63, 1<<63 - 1}
	unique := g.Perm(len(texts))[:g.IntN(4)]
	var list, strings, objects []any
	for range g.IntN(4) {
		list = append(list, pick(g, numbers))
	}
	for _, at := range unique {
		strings = append(strings, texts[at])
		one := map[string]any{"name": texts[at]}
		if g.IntN(2) == 0 {
			one["n"] = pick(g, numbers)
		}
		objects = append(objects, one)
	}
	inner := map[string]any{"s": pick(g, texts)}
	if g.IntN(2) == 0 {
		inner["a"] = pick(g, numbers)
	}
	all := map[string]any{
		"d": pick(g, []any{0.5, -1.25, 1e20, int64(3)}), "b": g.IntN(2) == 0, "by": "YWJj", "ts": "2021-03-04T05:06:07.089Z",
		"date": "2020-02-29", "du": "1h2m3.5s", "li": list, "ls": strings, "lo": objects, "m": map[string]any{pick(g, texts): pick(g, texts)},
		"mi": map[string]any{pick(g, texts): pick(g, numbers)}, "o": inner, "n": pick(g, []any{nil, "a", "abc"}), "e": pick(g, []any{"a", "abc", "1"}),
		"io": pick(g, []any{int64(4), "abc"}), "x": map[string]any{"y": int64(1)},
	}
	object := map[string]any{"i": pick(g, numbers), "s": pick(g, texts)}
	for name, value := range all {
		if list, ok := value.([]any); ok && list == nil {
			value = []any{}
		}
		object[name] = value
	}
	for _, name := range []string{"d", "b", "ts", "lo", "o", "n", "li", "mi"} {
		if g.IntN(8) == 0 {
			delete(object, name)
		}
	}
	return object
}
