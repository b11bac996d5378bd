//! The part of a protobuf descriptor set that the schema reads, with the options of
//! `proto/keelson/options.proto`.

/// `google.protobuf.FileDescriptorSet`.
#[derive(prost::Message)]
pub(super) struct FileSet {
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<File>,
}

#[derive(prost::Message)]
pub(super) struct File {
    #[prost(string, tag = "2")]
    pub package: String,
    #[prost(message, repeated, tag = "4")]
    pub messages: Vec<Message>,
    #[prost(message, required, tag = "8")]
    pub options: FileOptions,
}

#[derive(prost::Message)]
pub(super) struct FileOptions {
    #[prost(string, tag = "50001")]
    pub group: String,
    #[prost(string, tag = "50002")]
    pub version: String,
    #[prost(int32, tag = "50003")]
    pub group_priority: i32,
    #[prost(int32, tag = "50004")]
    pub version_priority: i32,
    #[prost(string, repeated, tag = "50005")]
    pub group_versions: Vec<String>,
}

#[derive(prost::Message)]
pub(super) struct Message {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub fields: Vec<Field>,
    #[prost(message, repeated, tag = "3")]
    pub nested: Vec<Message>,
    #[prost(message, required, tag = "7")]
    pub options: MessageOptions,
}

#[derive(prost::Message)]
pub(super) struct MessageOptions {
    /// True if this is the entry of a map field.
    #[prost(bool, tag = "7")]
    pub map_entry: bool,
    #[prost(bool, tag = "50001")]
    pub object: bool,
    #[prost(bool, tag = "50002")]
    pub published: bool,
    #[prost(enumeration = "Format", tag = "50003")]
    pub format: i32,
    #[prost(bool, tag = "50004")]
    pub atomic: bool,
    #[prost(string, tag = "50005")]
    pub unions: String,
    #[prost(enumeration = "Registered", tag = "50006")]
    pub registered: i32,
    #[prost(message, optional, tag = "50007")]
    pub resource: Option<Resource>,
}

#[derive(prost::Message)]
pub(super) struct Field {
    #[prost(int32, tag = "3")]
    pub number: i32,
    /// 1 optional, 3 repeated.
    #[prost(int32, tag = "4")]
    pub label: i32,
    /// `FieldDescriptorProto.Type`.
    #[prost(int32, tag = "5")]
    pub scalar: i32,
    /// With a leading dot.
    #[prost(string, tag = "6")]
    pub type_name: String,
    #[prost(message, required, tag = "8")]
    pub options: FieldOptions,
    #[prost(string, tag = "10")]
    pub json_name: String,
    #[prost(bool, tag = "17")]
    pub optional: bool,
}

#[derive(prost::Message)]
pub(super) struct FieldOptions {
    #[prost(bool, tag = "50001")]
    pub always: bool,
    #[prost(bool, tag = "50002")]
    pub nullable: bool,
    #[prost(bool, tag = "50003")]
    pub inline: bool,
    /// 1: set.
    #[prost(int32, tag = "50004")]
    pub list: i32,
    #[prost(string, repeated, tag = "50005")]
    pub keys: Vec<String>,
    /// 1: granular, 2: atomic.
    #[prost(int32, tag = "50006")]
    pub map: i32,
    #[prost(string, tag = "50007")]
    pub patch: String,
    #[prost(string, tag = "50008")]
    pub merge_key: String,
    #[prost(string, tag = "50009")]
    pub default: String,
    #[prost(string, repeated, tag = "50010")]
    pub enumeration: Vec<String>,
    #[prost(bool, tag = "50011")]
    pub required: bool,
    #[prost(string, tag = "50012")]
    pub go: String,
    #[prost(string, tag = "50013")]
    pub filled: String,
    #[prost(bool, tag = "50014")]
    pub embedded: bool,
    #[prost(bool, tag = "50015")]
    pub keeps_empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
pub(super) enum Format {
    Object = 0,
    Quantity = 1,
    Time = 2,
    MicroTime = 3,
    IntOrString = 4,
    Raw = 5,
    FieldsV1 = 6,
    WrappedList = 7,
    SchemaOrArray = 8,
    SchemaOrBool = 9,
    SchemaOrStringArray = 10,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
pub(super) enum Registered {
    Nowhere = 0,
    CoreV1 = 1,
    MetaV1 = 2,
    EveryVersion = 3,
}

#[derive(prost::Message)]
pub(super) struct Resource {
    #[prost(string, tag = "1")]
    pub plural: String,
    #[prost(string, tag = "2")]
    pub singular: String,
    #[prost(bool, tag = "3")]
    pub namespaced: bool,
    #[prost(string, repeated, tag = "4")]
    pub verbs: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub short_names: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub categories: Vec<String>,
    #[prost(string, tag = "7")]
    pub storage_prefix: String,
    #[prost(string, tag = "8")]
    pub stored_as: String,
    #[prost(bool, tag = "9")]
    pub stored_as_json: bool,
    #[prost(message, repeated, tag = "10")]
    pub subresources: Vec<Subresource>,
}

#[derive(prost::Message)]
pub(super) struct Subresource {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub kind: String,
    #[prost(string, repeated, tag = "3")]
    pub verbs: Vec<String>,
}
