//! `/openapi.json`: what the handlers' documentation adds up to.

use utoipa::{
    OpenApi as _,
    openapi::{
        ContactBuilder, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder,
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use super::calls::Calls;

/// The document without the routes.
pub(super) fn base() -> OpenApi {
    let about =
        "Runs WebAssembly functions over data in object storage. Errors are `application/problem+json`.";
    let info = InfoBuilder::new()
        .title("Fanfold")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(about))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").build()))
        .contact(Some(ContactBuilder::new().name(Some("Fanfold")).build()))
        .build();
    OpenApiBuilder::new().info(info).build()
}

/// The document with everything that no handler says.
pub(super) fn finish(mut document: OpenApi) -> OpenApi {
    document.merge(Calls::openapi());
    // The router's name of a parameter that takes slashes is no OpenAPI.
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    problems_have_their_media_type(&mut document);
    document
}

/// Every response whose body is a problem has the media type of problems.
fn problems_have_their_media_type(document: &mut OpenApi) {
    let items = document.paths.paths.values_mut();
    let operations = items.flat_map(|item| {
        [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.head].into_iter().flatten()
    });
    for response in operations.flat_map(|operation| operation.responses.responses.values_mut()) {
        let utoipa::openapi::RefOr::T(response) = response else { continue };
        let is_problem = |content: &utoipa::openapi::RefOr<utoipa::openapi::Content>| {
            serde_json::to_string(content).is_ok_and(|text| text.contains("#/components/schemas/Problem"))
        };
        if let Some(content) = response.content.swap_remove("application/json") {
            let kind = if is_problem(&content) { crate::problem::MEDIA_TYPE } else { "application/json" };
            response.content.insert(kind.to_owned(), content);
        }
    }
}
