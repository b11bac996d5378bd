#!/usr/bin/env python3
"""Writes the IDL in this folder from facts about the Kubernetes API. Run it again for a new Kubernetes version.

    generate.py --model model.json --protobuf protobuf.json --discovery api.json apis.json \
                --apiservices apiservices.json --staging <kubernetes>/staging/src/k8s.io

model.json and protobuf.json hold names, numbers and markers; the Go structs add the order of fields (the order of the
JSON) and which fields are pointers. Only facts are taken: no description or comment is copied.
"""
import argparse
import json
import re
from pathlib import Path

META = "k8s.io.apimachinery.pkg.apis.meta.v1"
RUNTIME = "k8s.io.apimachinery.pkg.runtime"
QUANTITY = "k8s.io.apimachinery.pkg.api.resource"
INTSTR = "k8s.io.apimachinery.pkg.util.intstr"
APIEXT = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1"

# Types whose JSON is not an object of their protobuf fields.
FORMATS = {
    f"{META}.Time": "TIME",
    f"{META}.MicroTime": "MICRO_TIME",
    f"{META}.FieldsV1": "FIELDS_V1",
    f"{META}.Verbs": "WRAPPED_LIST",
    f"{RUNTIME}.RawExtension": "RAW",
    f"{QUANTITY}.Quantity": "QUANTITY",
    f"{INTSTR}.IntOrString": "INT_OR_STRING",
    f"{APIEXT}.JSON": "RAW",
    f"{APIEXT}.JSONSchemaPropsOrArray": "SCHEMA_OR_ARRAY",
    f"{APIEXT}.JSONSchemaPropsOrBool": "SCHEMA_OR_BOOL",
    f"{APIEXT}.JSONSchemaPropsOrStringArray": "SCHEMA_OR_STRING_ARRAY",
}
# Small packages that hold only such types: no Go structs are read for them.
PLAIN = {RUNTIME: ["RawExtension"], QUANTITY: ["Quantity"], INTSTR: ["IntOrString"]}

# The kinds of meta.k8s.io; the group-less ones belong to `v1`, options to every group and version.
META_KINDS = {"PartialObjectMetadata": "meta.k8s.io", "PartialObjectMetadataList": "meta.k8s.io"}
UNVERSIONED = {"Status", "List", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"}
EVERYWHERE = {"WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"}

# Where a resource lies below /registry, if not under its plural (default_storage_factory_builder.go, apiserver options).
PREFIXES = {
    ("", "replicationcontrollers"): "controllers",
    ("", "endpoints"): "services/endpoints",
    ("", "nodes"): "minions",
    ("", "services"): "services/specs",
    ("networking.k8s.io", "ingresses"): "ingress",
    ("apiextensions.k8s.io", "customresourcedefinitions"): "apiextensions.k8s.io/customresourcedefinitions",
    ("apiregistration.k8s.io", "apiservices"): "apiregistration.k8s.io/apiservices",
}
# The version whose bytes are stored, where it is not the one served.
STORED_AS = {
    ("autoscaling/v1", "horizontalpodautoscalers"): "autoscaling/v2/HorizontalPodAutoscaler",
    ("events.k8s.io/v1", "events"): "v1/Event",
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicies"): "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy",
    ("admissionregistration.k8s.io/v1", "mutatingadmissionpolicybindings"): "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicyBinding",
}
# What reading fills in where nothing is stored: upstream applies its defaults to stored objects too.
FILLED = {
    "k8s.io.api.core.v1.PersistentVolumeClaimStatus.phase": "Pending",
    "k8s.io.api.core.v1.PersistentVolumeStatus.phase": "Pending",
    "k8s.io.api.core.v1.NamespaceStatus.phase": "Active",
}
# Lists whose items are shown with their kind and apiVersion (apps/v1 conversion.go).
EMBEDDED = {"k8s.io.api.apps.v1.StatefulSetSpec.volumeClaimTemplates"}
KEEPS_EMPTY = {
    "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta.managedFields",
    "k8s.io.api.autoscaling.v2.HPAScalingRules.policies",
}
STORED_AS_JSON = {"customresourcedefinitions", "apiservices"}

SCALARS = {
    "string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "float64": "double", "byte": "bytes",
    "int": "int32", "uint8": "int32",
}


class Package:
    """One Go package: its structs and its other named types."""

    def __init__(self, name, group, version, folder):
        self.name, self.group, self.version, self.folder = name, group, version, folder
        self.structs, self.aliases, self.imports = {}, {}, {}
        for file in sorted(folder.glob("*.go")):
            if not re.search(r"_test\.go$|^zz_|generated", file.name):
                self.read(file.read_text())

    def read(self, text):
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        for alias, path in re.findall(r'^\s*(?:import\s+)?(\w+)?[ \t]*"([\w./-]+)"', text, flags=re.M):
            self.imports[alias or path.split("/")[-1]] = path
        for match in re.finditer(r"^type (\w+) struct \{\n(.*?)^\}", text, flags=re.S | re.M):
            self.structs[match[1]] = match[2]
        for name in re.findall(r"^type (\w+) struct ?\{\}", text, flags=re.M):
            self.structs[name] = ""
        for match in re.finditer(r"^\s*(?:type )?(\w+) =? ?((?:\[\]|map\[)?[\w.\]]+)$", text, flags=re.M):
            self.aliases.setdefault(match[1], match[2])


class Facts:
    def __init__(self, args):
        load = lambda path: json.loads(Path(path).read_text())
        self.model = {value["proto"]: dict(value, openapi=key) for key, value in load(args.model).items() if "proto" in value}
        # A struct that is only ever inlined is not published: its markers stand with the one that inlines it.
        for parent in list(self.model.values()):
            for field in parent.get("fields", {}).values():
                if "note" in field and field["message"] not in self.model:
                    self.model[field["message"]] = {"fields": parent["fields"], "required": parent.get("required", [])}
        proto = load(args.protobuf)
        self.messages, self.kinds = proto["messages"], proto["kinds"]
        self.packages = {}
        staging = Path(args.staging)
        for name in sorted({proto.rpartition(".")[0] for proto in self.model} | {"k8s.io.api.admission.v1"}):
            parts = name.split(".")
            if name.startswith("k8s.io.api."):
                folder, group = staging / "api" / parts[3] / parts[4], self.group_of(name)
            elif name == META:
                folder, group = staging / "apimachinery/pkg/apis/meta/v1", "meta.k8s.io"
            elif "apiextensions" in name:
                folder, group = staging / "apiextensions-apiserver/pkg/apis/apiextensions/v1", "apiextensions.k8s.io"
            elif "apiregistration" in name:
                folder, group = staging / "kube-aggregator/pkg/apis/apiregistration/v1", "apiregistration.k8s.io"
            else:
                continue
            self.packages[name] = Package(name, group, parts[-1], folder)
        self.resources = {}
        for path in args.discovery:
            for group in load(path)["items"]:
                for version in group["versions"]:
                    gv = api_version(group["metadata"].get("name", ""), version["version"])
                    self.resources[gv] = version["resources"]
        self.priorities = {
            api_version(item["spec"].get("group", ""), item["spec"]["version"]): (
                item["spec"]["groupPriorityMinimum"], item["spec"]["versionPriority"])
            for item in load(args.apiservices)["items"]
        }
        self.group_versions = sorted({kind.rpartition("/")[0] for kind in self.kinds})

    def group_of(self, package):
        for kind, message in self.kinds.items():
            if message.rpartition(".")[0] == package and not message.startswith(META):
                return kind.rpartition("/")[0].rpartition("/")[0]
        return f"{package.split('.')[3]}.k8s.io"


def api_version(group, version):
    return f"{group}/{version}" if group else version


def quote(value):
    return json.dumps(value, ensure_ascii=True)


class Writer:
    """Writes the messages of one package."""

    def __init__(self, facts, package):
        self.facts, self.package, self.imports = facts, package, {"keelson/options.proto"}

    def resolve(self, expr, package=None):
        """Splits a Go type into (shape, proto type, pointer); shape is '', 'list' or 'map'."""
        package = package or self.package
        if expr.startswith("*"):
            shape, proto, _ = self.resolve(expr[1:], package)
            return shape, proto, True
        if expr in ("[]byte", "json.RawMessage"):
            return "", "bytes", False
        if expr.startswith("[]"):
            return "list", self.resolve(expr[2:], package)[1], False
        if expr.startswith("map["):
            return "map", self.resolve(expr[expr.index("]") + 1:], package)[1], False
        if expr in SCALARS:
            return "", SCALARS[expr], False
        if "." in expr:
            alias, name = expr.split(".")
            path = package.imports[alias]
            target = path.replace("/", ".").replace("apiextensions-apiserver", "apiextensions_apiserver")
            target = target.replace("kube-aggregator", "kube_aggregator")
            if target in self.facts.packages:
                return self.resolve(name, self.facts.packages[target])
            if target == "k8s.io.apimachinery.pkg.types":
                return "", "string", False
            return "", f"{target}.{name}", False
        full = f"{package.name}.{expr}"
        if full in FORMATS or expr in package.structs:
            return "", full, False
        # A named slice that is a message of its own in protobuf, such as ExtraValue.
        if full in self.facts.messages and self.facts.messages[full]["fields"][0]["name"] == "items":
            return "", full, False
        if expr in package.aliases:
            return self.resolve(package.aliases[expr], package)
        raise SystemExit(f"unknown type {expr} in {package.name}")

    def go_name(self, expr, package=None):
        """A Go type as errors spell it: pointers left out, names qualified with their package."""
        package = package or self.package
        if expr.startswith("*"):
            return self.go_name(expr[1:], package)
        if expr.startswith("[]"):
            return "[]" + self.go_name(expr[2:], package)
        if expr.startswith("map["):
            key, value = expr[4:].split("]", 1)
            return f"map[{self.go_name(key, package)}]{self.go_name(value, package)}"
        if expr in SCALARS:
            return "uint8" if expr == "byte" else expr
        if "." in expr:
            alias, name = expr.split(".")
            return f"{package.imports[alias].split('/')[-1]}.{name}"
        return f"{package.name.rpartition('.')[2]}.{expr}"

    def plain_name(self, shape, proto):
        """What `go_name` says of a type that has no name of its own."""
        name = {"double": "float64", "bytes": "[]uint8"}.get(proto, proto)
        if "." in proto:
            name = ".".join(proto.split(".")[-2:])
        return {"list": f"[]{name}", "map": f"map[string]{name}", "": name}[shape]

    def fields(self, name):
        """The fields of a struct in Go order: (json, number, go type, omitempty, omitzero), or (None, ...) for embedded ones."""
        for line in self.package.structs[name].splitlines():
            match = re.match(r"\s*(?:(\w+)\s+)?(\*?[\w.\[\]*]+)\s*`(.*)`", line)
            if not match or line.strip().startswith("//"):
                continue
            tags = match[3]
            found = re.search(r'json:"([^"]*)"', tags)
            if not found or found[1] == "-":
                continue
            json_name, *flags = found[1].split(",")
            proto = re.search(r'protobuf:"(?:bytes|varint|fixed64|\w+),(\d+)', tags)
            number = int(proto[1]) if proto else 0
            inline = "inline" in flags or not json_name
            yield None if inline else json_name, number, match[2], flags

    def short(self, proto):
        package = proto.rpartition(".")[0]
        if package == self.package.name:
            return proto.rpartition(".")[2]
        self.imports.add(path_of(package))
        return proto[len("k8s.io."):]

    def message(self, name):
        full = f"{self.package.name}.{name}"
        model = self.facts.model.get(full, {})
        numbers = {field["number"]: field for field in self.facts.messages[full]["fields"]}
        body, type_meta = [], False
        for json_name, number, go, flags in self.fields(name):
            if json_name is None and go.endswith("TypeMeta"):
                type_meta = True
                continue
            if number not in numbers:
                raise SystemExit(f"{full}: no protobuf field {number} ({json_name})")
            body.append(self.field(full, json_name, number, go, flags, model, numbers[number]))
        missing = set(numbers) - {int(re.search(r"= (\d+)", line)[1]) for line in body}
        if missing:
            raise SystemExit(f"{full}: fields {missing} are not in the Go struct")
        return self.wrap(name, self.message_options(name, model, type_meta) + body)

    def wrap(self, name, lines):
        return "\n".join([f"message {name} {{", *[f"  {line}" for line in lines], "}"]) if lines else f"message {name} {{}}"

    def formatted(self, full):
        """A message whose JSON has a form of its own."""
        lines = [f"option (keelson.format) = {FORMATS.get(full, 'WRAPPED_LIST')};"]
        if full in self.facts.model:
            lines.append("option (keelson.published) = true;")
        for field in self.facts.messages[full]["fields"]:
            kind = field["type"] if "." not in field["type"] else self.short(field["type"])
            label = "repeated " if field.get("repeated") else ""
            lines.append(f"{label}{kind} {field['name']} = {field['number']};")
        return self.wrap(full.rpartition(".")[2], lines)

    def message_options(self, name, model, type_meta):
        out = []
        if "openapi" in model:
            default = self.openapi_prefix() + name
            if model["openapi"] != default:
                raise SystemExit(f"{model['openapi']} is not {default}")
            out.append("option (keelson.published) = true;")
        if type_meta:
            out.append("option (keelson.object) = true;")
            if self.package.name == META:
                scope = "EVERY_VERSION" if name in EVERYWHERE else "CORE_V1" if name in UNVERSIONED else "META_V1" if name in META_KINDS else ""
                if scope:
                    out.append(f"option (keelson.registered) = {scope};")
        elif name == "WatchEvent":
            out.append("option (keelson.registered) = EVERY_VERSION;")
        if model.get("x-kubernetes-map-type") == "atomic":
            out.append("option (keelson.atomic) = true;")
        if "x-kubernetes-unions" in model:
            out.append(f"option (keelson.unions) = {quote(json.dumps(model['x-kubernetes-unions'], separators=(',', ':')))};")
        gv = api_version(self.package.group, self.package.version)
        for resource in self.facts.resources.get(gv, []):
            kind = resource["responseKind"]
            if kind["kind"] == name and self.package.name != META and api_version(kind["group"], kind["version"]) in ("", gv):
                out.extend(self.resource(gv, resource))
        return out

    def openapi_prefix(self):
        name = self.package.name.replace("apiextensions_apiserver", "apiextensions-apiserver").replace("kube_aggregator", "kube-aggregator")
        return "io.k8s." + name[len("k8s.io."):] + "."

    def resource(self, gv, facts):
        group, plural = self.package.group, facts["resource"]
        lines = [f"plural: {quote(plural)}", f"singular: {quote(facts['singularResource'])}"]
        if facts["scope"] == "Namespaced":
            lines.append("namespaced: true")
        lines.append(f"verbs: {self.strings(facts['verbs'])}")
        if facts.get("shortNames"):
            lines.append(f"short_names: {self.strings(facts['shortNames'])}")
        if facts.get("categories"):
            lines.append(f"categories: {self.strings(facts['categories'])}")
        if "watch" in facts["verbs"]:
            lines.append(f"storage_prefix: {quote(PREFIXES.get((group, plural), plural))}")
        if (gv, plural) in STORED_AS:
            lines.append(f"stored_as: {quote(STORED_AS[gv, plural])}")
        if plural in STORED_AS_JSON:
            lines.append("stored_as_json: true")
        for sub in facts.get("subresources", []):
            kind = sub["responseKind"]
            version = api_version(kind["group"], kind["version"])
            full = f"{version}/{kind['kind']}" if version else kind["kind"]
            lines.append(f"subresources {{ name: {quote(sub['subresource'])} kind: {quote(full)} verbs: {self.strings(sub['verbs'])} }}")
        return ["option (keelson.resource) = {", *[f"  {line}" for line in lines], "};"]

    def strings(self, items):
        return "[" + ", ".join(quote(item) for item in items) + "]"

    def field(self, full, json_name, number, go, flags, model, proto_field):
        shape, proto, pointer = self.resolve(go)
        kind = proto if "." not in proto else self.short(proto)
        options = []
        if json_name is None:
            return f"{kind} {proto_field['name']} = {number} [(keelson.inline) = true];"
        facts = model.get("fields", {}).get(json_name, {})
        if "openapi" in model and facts.get("number", number) != number:
            raise SystemExit(f"{full}.{json_name}: number {number} is not {facts}")
        is_value = "." in proto and not shape and not pointer and FORMATS.get(proto, "") != "WRAPPED_LIST" and proto not in self.wrapped()
        label = "optional " if pointer and not shape else ""
        if ("omitempty" not in flags and not pointer or is_value) and "omitzero" not in flags:
            options.append("(keelson.always) = true")
        elif pointer and "omitempty" not in flags and "omitzero" not in flags:
            options.append("(keelson.nullable) = true")
        elif facts.get("goZeroDefault"):
            # A default that says no more than the zero value; list map keys need to know of it.
            zero = {"string": '""', "boolean": "false", "integer": "0"}.get(facts.get("type"))
            options += [f"(keelson.default) = {quote(zero)}"] if zero else []
        options += self.markers(facts)
        if json_name in model.get("required", []):
            options.append("(keelson.required) = true")
        if f"{full}.{json_name}" in FILLED:
            options.append(f"(keelson.filled) = {quote(FILLED[f'{full}.{json_name}'])}")
        if f"{full}.{json_name}" in EMBEDDED:
            options.append("(keelson.embedded) = true")
        if f"{full}.{json_name}" in KEEPS_EMPTY:
            options.append("(keelson.keeps_empty) = true")
        if self.go_name(go) != self.plain_name(shape, proto):
            options.append(f"(keelson.go) = {quote(self.go_name(go))}")
        name = json_name
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", json_name):
            name = proto_field["name"]
            options.insert(0, f"json_name = {quote(json_name)}")
        text = {"list": f"repeated {kind}", "map": f"map<string, {kind}>", "": f"{label}{kind}"}[shape]
        tail = f" [{', '.join(options)}]" if options else ""
        return f"{text} {name} = {number}{tail};"

    def wrapped(self):
        return {name for name in self.facts.messages if name.endswith(".ExtraValue") or name.endswith(".Verbs")}

    def markers(self, facts):
        out = []
        kind = facts.get("x-kubernetes-list-type")
        if kind == "set":
            out.append("(keelson.list) = SET")
        for key in facts.get("x-kubernetes-list-map-keys", []):
            out.append(f"(keelson.key) = {quote(key)}")
        if "x-kubernetes-map-type" in facts:
            kind = {"granular": "GRANULAR", "atomic": "ATOMIC_MAP"}[facts["x-kubernetes-map-type"]]
            out.append(f"(keelson.map) = {kind}")
        if "x-kubernetes-patch-strategy" in facts:
            out.append(f"(keelson.patch) = {quote(facts['x-kubernetes-patch-strategy'])}")
        if "x-kubernetes-patch-merge-key" in facts:
            out.append(f"(keelson.merge_key) = {quote(facts['x-kubernetes-patch-merge-key'])}")
        # Generated empty defaults ({} for a struct, "" for a required string) are what `always` says already.
        if facts.get("default") not in (None, {}, "", 0, False):
            out.append(f"(keelson.default) = {quote(json.dumps(facts['default']))}")
        for value in facts.get("enum", facts.get("items", {}).get("enum", [])):
            out.append(f"(keelson.enum) = {quote(value)}")
        return out

    def file(self):
        names = sorted(name for name in self.package.structs if f"{self.package.name}.{name}" in self.facts.messages)
        formats = [full for full in self.facts.messages if full.rpartition(".")[0] == self.package.name
                   and (full in FORMATS or full in self.wrapped())]
        blocks = {full.rpartition(".")[2]: self.formatted(full) for full in formats}
        for name in names:
            if name not in blocks and name not in ("Timestamp", "Patch", "Duration"):
                blocks[name] = self.message(name)
        gv = api_version(self.package.group, self.package.version)
        options = [f"option (keelson.group) = {quote(self.package.group)};", f"option (keelson.version) = {quote(self.package.version)};"]
        if gv in self.facts.priorities:
            group, version = self.facts.priorities[gv]
            options += [f"option (keelson.group_priority) = {group};", f"option (keelson.version_priority) = {version};"]
        if self.package.name == META:
            options += [f"option (keelson.group_versions) = {quote(gv)};" for gv in self.facts.group_versions]
        head = ['syntax = "proto3";', f"package {self.package.name};"]
        head.append("\n".join(f'import "{path}";' for path in sorted(self.imports - {path_of(self.package.name)})))
        head.append("\n".join(options))
        return "// Written by generate.py.\n" + "\n\n".join(head + [blocks[name] for name in sorted(blocks)]) + "\n"


def path_of(package):
    """The file of a package: api/core/v1.proto, apimachinery/meta/v1.proto."""
    parts = [part for part in package[len("k8s.io."):].split(".") if part not in ("pkg", "apis")]
    if parts[0] in ("apiextensions_apiserver", "kube_aggregator"):
        parts = parts[1:]
    if parts[-1].startswith("v"):
        return f"{'/'.join(parts)}.proto"
    return f"apimachinery/{parts[-1]}.proto"


def plain_file(facts, package, names):
    stub = Package.__new__(Package)
    stub.name, stub.structs = package, {}
    writer = Writer(facts, stub)
    body = [writer.formatted(f"{package}.{name}") for name in names]
    return "// Written by generate.py.\n" + "\n\n".join(['syntax = "proto3";', f"package {package};", 'import "keelson/options.proto";', *body]) + "\n"


def main():
    parser = argparse.ArgumentParser()
    for name in ("--model", "--protobuf", "--apiservices", "--staging"):
        parser.add_argument(name, required=True)
    parser.add_argument("--discovery", nargs=2, required=True)
    facts = Facts(parser.parse_args())
    root = Path(__file__).parent
    files = {path_of(name): Writer(facts, package).file() for name, package in facts.packages.items()}
    files |= {path_of(name): plain_file(facts, name, types) for name, types in PLAIN.items()}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


if __name__ == "__main__":
    main()
