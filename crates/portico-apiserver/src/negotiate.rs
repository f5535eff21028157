//! In which form a client wants its answer: the `Accept` header.

use portico_api::status::ApiError;

/// What is written on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Json,
    Yaml,
    Protobuf,
}

impl Wire {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What is made of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    /// Rows and columns, as `kubectl get` prints them.
    Table(Include),
    /// Metadata alone, of one object.
    Metadata,
    /// Metadata alone, of the objects of a list.
    MetadataList,
}

/// The version of what an object is turned into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1Beta1,
}

impl MetaVersion {
    pub(crate) fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// What the rows of a Table carry besides their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    pub wire: Wire,
    pub form: Form,
    /// The version of the Table, or of the metadata.
    pub version: MetaVersion,
    pub pretty: bool,
}

impl Accept {
    pub(crate) const JSON: Self = Self {
        wire: Wire::Json,
        form: Form::Object,
        version: MetaVersion::V1,
        pretty: false,
    };

    /// Pick what the server can give. JSON wins over protobuf where a client takes both: it is what
    /// is stored.
    pub(crate) fn parse(header: &str, include: &str, pretty: bool) -> Result<Self, ApiError> {
        let offers: Vec<Offer<'_>> = clauses(header)
            .filter_map(|clause| Offer::parse(&clause))
            .collect();
        let preferred = |wire| offers.iter().find(|offer| offer.wire == wire);
        let best = offers.first().map(|first| match first.wire {
            Wire::Protobuf => preferred(Wire::Json).unwrap_or(first),
            _ => first,
        });
        match best {
            Some(offer) => Ok(Self {
                wire: offer.wire,
                form: offer.form(include)?,
                version: offer.version,
                pretty,
            }),
            None if header.trim().is_empty() => Ok(Self {
                pretty,
                ..Self::JSON
            }),
            None => Err(not_acceptable(
                "only the following media types are accepted: application/json, application/yaml, \
                 application/vnd.kubernetes.protobuf",
            )),
        }
    }
}

pub(crate) fn not_acceptable(message: &str) -> ApiError {
    ApiError::new(406, "NotAcceptable", message)
}

/// Clauses by preference: those with a higher `q` first, otherwise as they stand.
pub(crate) fn clauses(header: &str) -> impl Iterator<Item = Clause<'_>> {
    let mut all: Vec<Clause<'_>> = header
        .split(',')
        .map(Clause::parse)
        .filter(|c| !c.media.is_empty())
        .collect();
    all.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    all.into_iter()
}

/// One clause of an Accept header.
#[derive(Debug)]
pub(crate) struct Clause<'a> {
    pub media: &'a str,
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters
            .iter()
            .find(|(key, _)| *key == "q")
            .and_then(|(_, q)| q.parse().ok())
            .unwrap_or(1.0);
        Self {
            media,
            quality,
            parameters,
        }
    }

    pub(crate) fn parameter(&self, key: &str) -> &'a str {
        self.parameters
            .iter()
            .find(|(name, _)| *name == key)
            .map_or("", |(_, value)| value)
    }
}

struct Offer<'a> {
    wire: Wire,
    shape: &'a str,
    version: MetaVersion,
}

impl<'a> Offer<'a> {
    fn parse(clause: &Clause<'a>) -> Option<Self> {
        let wire = match clause.media {
            "application/json" | "*/*" => Wire::Json,
            "application/yaml" => Wire::Yaml,
            "application/vnd.kubernetes.protobuf" => Wire::Protobuf,
            _ => return None,
        };
        let shape = clause.parameter("as");
        let known = matches!(
            shape,
            "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList"
        ) && clause.parameter("g") == "meta.k8s.io"
            && matches!(clause.parameter("v"), "v1" | "v1beta1")
            && wire != Wire::Protobuf;
        let version = if clause.parameter("v") == "v1beta1" {
            MetaVersion::V1Beta1
        } else {
            MetaVersion::V1
        };
        (shape.is_empty() || known).then_some(Self {
            wire,
            shape,
            version,
        })
    }

    fn form(&self, include: &str) -> Result<Form, ApiError> {
        match (self.shape, include) {
            ("Table", "" | "Metadata") => Ok(Form::Table(Include::Metadata)),
            ("Table", "None") => Ok(Form::Table(Include::None)),
            ("Table", "Object") => Ok(Form::Table(Include::Object)),
            ("Table", other) => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value {other:?}: use None, Metadata or Object"
            ))),
            ("", _) => Ok(Form::Object),
            ("PartialObjectMetadataList", _) => Ok(Form::MetadataList),
            _ => Ok(Form::Metadata),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send() {
        let table = Form::Table(Include::Metadata);
        let cases = [
            ("", Wire::Json, Form::Object),
            ("*/*", Wire::Json, Form::Object),
            (
                "application/vnd.kubernetes.protobuf",
                Wire::Protobuf,
                Form::Object,
            ),
            (
                "application/vnd.kubernetes.protobuf,application/json",
                Wire::Json,
                Form::Object,
            ),
            (
                "application/vnd.kubernetes.protobuf, */*",
                Wire::Json,
                Form::Object,
            ),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                Wire::Json,
                table,
            ),
            (
                "application/xml;q=0.9, application/json;q=0.5",
                Wire::Json,
                Form::Object,
            ),
            (
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                Wire::Json,
                Form::Metadata,
            ),
            (
                "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                Wire::Json,
                Form::MetadataList,
            ),
            ("application/yaml", Wire::Yaml, Form::Object),
            (
                "application/json;q=0.2,application/yaml;q=0.9",
                Wire::Yaml,
                Form::Object,
            ),
        ];
        for (header, wire, form) in cases {
            let wanted = Accept {
                wire,
                form,
                ..Accept::JSON
            };
            assert_eq!(Accept::parse(header, "", false), Ok(wanted), "{header}");
        }
        let old = Accept::parse(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
            "",
            false,
        );
        assert_eq!(old.map(|accept| accept.version), Ok(MetaVersion::V1Beta1));
        for header in ["application/xml", "application/*"] {
            assert_eq!(
                Accept::parse(header, "", false).map_err(|e| e.code),
                Err(406),
                "{header}"
            );
        }
        let as_table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(
            Accept::parse(as_table, "Everything", false).map_err(|e| e.code),
            Err(400)
        );
    }
}
