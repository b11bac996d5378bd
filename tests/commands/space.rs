//! A store that is full by its quota, and `keelson defrag`.

use kube::api::{DeleteParams, PostParams};

use crate::support::{Store, TestServer, http as wire};
use crate::{config_maps, create, flag, found, keelson};

#[tokio::test(flavor = "multi_thread")]
async fn a_full_store_takes_deletions_only_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = TestServer::start_with(
        folder.path(),
        Store::Embedded,
        &[
            "--quota-backend-bytes=3000000",
            "--etcd-compaction-interval=0",
        ],
    )
    .await;
    let api = config_maps(&server);
    let refused = loop {
        let count = found(&server).await.len();
        assert!(count < 100, "the quota is not kept");
        let mut object = k8s_openapi::api::core::v1::ConfigMap::default();
        object.metadata.name = Some(format!("large{count}"));
        object.data = Some([("text".to_owned(), "x".repeat(200_000))].into());
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) => break status,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(refused.code, 500);
    assert_eq!(refused.message, "etcdserver: mvcc: database space exceeded");
    assert!(server.metrics().await.contains("keelson_storage_alarms 1"));
    assert_eq!(wire::get_status(server.port(), "/livez").await, Some(200));
    assert!(
        server
            .log()
            .contains("the embedded store is full by its quota")
    );

    // Reads and deletions go on. What was deleted is history until that is compacted.
    let large = found(&server).await;
    for name in large.keys() {
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(found(&server).await.is_empty());
    keelson(["defrag", "--compact", &flag("data-dir", &data)])
        .await
        .ok();
    create(&server, "small").await;
    assert!(server.metrics().await.contains("keelson_storage_alarms 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_gives_free_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let (data, file) = (
        folder.path().join("data"),
        folder.path().join("data/keelson.redb"),
    );
    let mut server = TestServer::start_in(folder.path(), Store::Embedded).await;
    let api = config_maps(&server);
    for round in 0..30 {
        let mut object = k8s_openapi::api::core::v1::ConfigMap::default();
        object.metadata.name = Some(format!("large{round}"));
        object.data = Some([("text".to_owned(), "x".repeat(300_000))].into());
        api.create(&PostParams::default(), &object).await.unwrap();
        api.delete(&format!("large{round}"), &DeleteParams::default())
            .await
            .unwrap();
    }
    create(&server, "kept").await;
    let large = std::fs::metadata(&file).unwrap().len();
    keelson(["defrag", "--compact", &flag("data-dir", &data)])
        .await
        .ok();
    let small = std::fs::metadata(&file).unwrap().len();
    assert!(small < large / 2, "{large} became {small}");
    create(&server, "after").await;
    let before = found(&server).await;
    server.kill();
    keelson(["defrag", &flag("data-dir", &data)]).await.ok();
    let server = TestServer::start_in(folder.path(), Store::Embedded).await;
    assert_eq!(found(&server).await, before);
    assert_eq!(before.len(), 2);
}
