//! The checks when roles and bindings are written: a user may hand out only permissions that they
//! have.

use super::index::describe_user;
use super::{Rbac, Request, Rule, uncovered};
use crate::auth::user::{MASTERS, User};
use portico_api::object;
use portico_api::status::{ApiError, Result, Subject};
use serde_json::Value;

impl Rbac {
    /// May `user` write this Role or ClusterRole? `request` is the request being served, with the
    /// name as in its path.
    pub(crate) fn check_role(
        &self,
        user: &User,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let escalate = Request {
            verb: "escalate",
            subresource: "",
            ..*request
        };
        if user.is_in(MASTERS)
            || self.decide(user, &escalate.into()).allowed
            || only_bookkeeping(new, old)
        {
            return Ok(());
        }
        let name = object::name(new);
        self.check_held(
            user,
            request,
            name,
            &Rule::parse_all(object::at(new, "rules")),
        )?;
        let gathers =
            |role: &Value| !object::items(role, "aggregationRule.clusterRoleSelectors").is_empty();
        let may_gather = || {
            self.check_held(user, request, name, &Rule::everything())
                .is_ok()
        };
        if (gathers(new) || old.is_some_and(gathers)) && !may_gather() {
            return Err(refused(
                request,
                name,
                "must have cluster-admin privileges to use the aggregationRule",
            ));
        }
        Ok(())
    }

    /// May `user` write this RoleBinding or ClusterRoleBinding?
    pub(crate) fn check_binding(
        &self,
        user: &User,
        request: &Request<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let (kind, role) = (
            object::text(new, "roleRef.kind"),
            object::text(new, "roleRef.name"),
        );
        let resource = match kind {
            "ClusterRole" => "clusterroles",
            _ => "roles",
        };
        let bind = Request {
            verb: "bind",
            group: object::text(new, "roleRef.apiGroup"),
            resource,
            subresource: "",
            name: role,
            namespace: request.namespace,
        };
        if user.is_in(MASTERS)
            || only_bookkeeping(new, old)
            || self.decide(user, &bind.into()).allowed
        {
            return Ok(());
        }
        let group = "rbac.authorization.k8s.io";
        let rules = self
            .referenced(kind, role, request.namespace)
            .map_err(|_| ApiError::not_found(Subject { group, resource }, role))?;
        self.check_held(user, request, object::name(new), rules)
    }

    fn check_held(
        &self,
        user: &User,
        request: &Request<'_>,
        name: &str,
        rules: &[Rule],
    ) -> Result<()> {
        let missing = uncovered(&self.rules_for(user, request.namespace), rules);
        if missing.is_empty() {
            return Ok(());
        }
        let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let who = describe_user(user);
        let why = format!(
            "{who} is attempting to grant RBAC permissions not currently held:\n{}",
            missing.join("\n")
        );
        Err(refused(request, name, &why))
    }
}

fn refused(request: &Request<'_>, name: &str, why: &str) -> ApiError {
    ApiError::forbidden(
        Subject {
            group: request.group,
            resource: request.resource,
        },
        name,
        why,
    )
}

/// Does an update change only what garbage collection and the server itself need to change?
fn only_bookkeeping(new: &Value, old: Option<&Value>) -> bool {
    let bare = |object: &Value| {
        let mut bare = object.clone();
        let metadata = object::child(&mut bare, "metadata");
        for field in [
            "ownerReferences",
            "finalizers",
            "managedFields",
            "resourceVersion",
        ] {
            metadata.remove(field);
        }
        bare
    };
    old.is_some_and(|old| bare(old) == bare(new))
}
