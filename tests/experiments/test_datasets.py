"""Tests of experiments.fetch: data sets in their original formats, and the sentence for one that is
missing.
"""

import gzip
import hashlib
import shutil
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

from experiments import datasets, fetch
from experiments.errors import InputError


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    """An empty cache, a data directory of our own, and addresses that lead to a local folder."""
    for name in ("data", "cache", "web"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("JAXBNN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for family in fetch.ADDRESSES:
        address = f"file://{tmp_path}/web/{family}/"
        monkeypatch.setitem(fetch.ADDRESSES, family, address)
    return tmp_path


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def list_sums(directory):
    """Write SHA256SUMS, which is authoritative in $JAXBNN_DATA."""
    files = [path for path in directory.rglob("*") if path.is_file()]
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n"
        for path in files
    ]
    (directory / "SHA256SUMS").write_text("".join(lines))


def small_uci(folder, rows=10, splits=2):
    table = np.arange(rows * 3, dtype=float).reshape(rows, 3)
    lines = "\n".join(" ".join(f"{value:.1f}" for value in line) for line in table)
    put(folder / "data.txt", f"{lines}\n\n".encode())
    put(folder / "index_features.txt", b"0\n1\n")
    put(folder / "index_target.txt", b"2\n")
    put(folder / "n_splits.txt", f"{splits}\n".encode())
    for split in range(splits):
        order = np.random.default_rng(split).permutation(rows)
        put(folder / f"index_train_{split}.txt", "\n".join(map(str, order[:9])).encode())
        put(folder / f"index_test_{split}.txt", f"{order[9]}.000e+00".encode())
    return table


def records(count, label=3):
    one = np.arange(1 + 3072, dtype=np.uint64).astype(np.uint8)
    table = np.tile(one, (count, 1))
    table[:, 0] = label
    return table


def test_iris_and_xor_ship():
    x, y = datasets.iris()
    assert x.shape == (150, 4)
    assert np.bincount(y).tolist() == [50, 50, 50]
    # The row that follows the UCI file's well-known slip.
    assert x[34].tolist() == [4.9, 3.1, 1.5, 0.1]
    x, y = datasets.xor()
    assert (x.sum(axis=1) % 2 == y).all()


def test_uci_reads_the_original_layout(places):
    table = small_uci(places / "data/uci/yacht")
    list_sums(places / "data")
    split = datasets.uci("yacht", 1)
    assert split.x_train.shape == (9, 2)
    rows = np.concatenate([split.x_train, split.x_test])
    order = np.argsort(rows[:, 0])
    np.testing.assert_array_equal(rows[order], table[:, :2])
    targets = np.concatenate([split.y_train, split.y_test])
    np.testing.assert_array_equal(targets[order], table[:, 2])
    splits = datasets.uci_splits("yacht")
    assert len(splits) == 2
    np.testing.assert_array_equal(split.x_test, table[splits[1][1], :2])
    with pytest.raises(InputError, match="splits 0 to 1, but 2 was asked for"):
        datasets.uci("yacht", 2)
    with pytest.raises(InputError, match="did you mean 'yacht'"):
        datasets.uci("yahct", 0)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data.txt", b"1 2 x\n", r"data\.txt is not a table of numbers"),
        ("data.txt", b"1 2 3\n1 2\n", r"data\.txt is not a table of numbers"),
        ("data.txt", b"1 2 nan\n", r"data\.txt holds a value that is not finite"),
        ("data.txt", b"<!DOCTYPE html><html>", r"data\.txt is a web page"),
        ("data.txt", b"\xff\xfe\x00", r"data\.txt is not a table of numbers"),
        ("index_target.txt", b"7\n", r"index_target\.txt names a column"),
        ("index_target.txt", b"1\n2\n", r"index_target\.txt must hold one number"),
        ("data.txt", b" \n", r"data\.txt is empty"),
        ("index_target.txt", b"1e400\n", r"index_target\.txt is not a table of numbers: whole"),
        ("index_target.txt", b"1.5\n", r"index_target\.txt is not a table of numbers: whole"),
        ("n_splits.txt", b"0\n", r"n_splits\.txt must hold one number"),
        ("index_train_0.txt", b"0\n1\n", r"index_train_0\.txt .* do not partition the 10 rows"),
    ],
)
def test_damaged_uci_files_are_one_sentence(places, file, content, message):
    folder = places / "data/uci/yacht"
    small_uci(folder)
    (folder / file).write_bytes(content)
    list_sums(places / "data")
    with pytest.raises(InputError, match=message):
        datasets.uci("yacht", 0)


def test_a_damaged_list_of_sums_is_one_sentence(places):
    small_uci(places / "data/uci/yacht")
    put(places / "data/SHA256SUMS", b"\xff\xfe")
    with pytest.raises(InputError, match="SHA256SUMS is not a list of sums in text"):
        datasets.uci("yacht", 0)


def test_another_file_than_the_listed_or_the_known_one_is_refused(places):
    small_uci(places / "data/uci/yacht")
    with pytest.raises(InputError, match=r"is not the original uci/yacht/data\.txt"):
        datasets.uci("yacht", 0)
    list_sums(places / "data")
    datasets.uci("yacht", 0)
    with (places / "data/uci/yacht/data.txt").open("ab") as file:
        file.write(b"1 2 3\n")
    with pytest.raises(InputError, match=r"is not the file that .*SHA256SUMS lists"):
        datasets.uci("yacht", 0)


BICYCLES = """instant,dteday,season,yr,mnth,hr,holiday,weekday,workingday,weathersit,temp,atemp,\
hum,windspeed,casual,registered,cnt
"""


def small_bicycles(folder, rows=11):
    lines = [f"{i},2011-01-01,{i}," + ",".join(f"{i}.{c}" for c in range(11)) for i in range(rows)]
    ends = [f",{i},{2 * i},{3 * i}" for i in range(rows)]
    text = BICYCLES + "".join(f"{a}{b}\n" for a, b in zip(lines, ends, strict=True))
    put(folder / "tabular/bikesharing_hour.csv", text.encode())


def test_bicycles_are_read_by_the_names_of_their_columns(places):
    """Riders that add up to the target, the row's number and its date are no inputs."""
    small_bicycles(places / "data")
    list_sums(places / "data")
    split = datasets.tabular("bikesharing")
    assert split.x_train.shape == (8, 12)
    assert split.x_test.shape == (3, 12)
    x = np.concatenate([split.x_train, split.x_test])
    np.testing.assert_array_equal(np.concatenate([split.y_train, split.y_test]), 3 * x[:, 0])
    np.testing.assert_allclose(x[:, 1:], x[:, :1] + np.r_[0:10, 1] / 10)
    # The rows that scikit-learn's train_test_split(..., test_size=0.2, random_state=0) holds out.
    assert split.y_test.tolist() == [3 * 4, 3 * 9, 3 * 2]
    assert split.y_train.tolist() == [3 * i for i in (10, 6, 1, 7, 8, 3, 0, 5)]
    assert datasets.tabular("bikesharing", 1).y_test.tolist() != split.y_test.tolist()
    with pytest.raises(InputError, match="did you mean 'airfoil'"):
        datasets.tabular("airfol")
    with pytest.raises(InputError, match="seed must be from 0"):
        datasets.tabular("airfoil", -1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"airfoil\.csv is not a table of numbers"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"a,b\n1,2\n", r"airfoil\.csv has no column 'frequency'; it has a,b"),
        (b"frequency,angle,length,velocity,thickness,target\n", r"airfoil\.csv is empty"),
        (
            b"frequency,angle,length,velocity,thickness,target\n1,2,3\n",
            r"airfoil\.csv is not a table of numbers",
        ),
        (
            b"frequency,angle,length,velocity,thickness,target\n1,2,x,4,5,6\n",
            r"airfoil\.csv is not a table of numbers",
        ),
        (
            b"frequency,angle,length,velocity,thickness,target\n1,2,inf,4,5,6\n",
            r"airfoil\.csv holds a value that is not finite",
        ),
        (
            b"frequency,angle,length,velocity,thickness,target\n1,2,3,4,5,6\n",
            r"airfoil\.csv is not the original tabular/airfoil\.csv",
        ),
    ],
)
def test_damaged_tables_are_one_sentence(places, content, message):
    put(places / "data/tabular/airfoil.csv", content)
    with pytest.raises(InputError, match=message):
        datasets.tabular("airfoil")


def test_standardised_by_the_training_rows_alone():
    rng = np.random.default_rng(0)
    x, y = rng.normal(3.0, 2.0, size=(10, 3)), rng.normal(size=10)
    x[:, 2] = 7.0
    split = datasets.standardised(datasets.Split(x, y, x[:4] + 1, y[:4]))
    np.testing.assert_allclose(split.x_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(split.x_train.std(axis=0), [1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(split.y_train.std(), 1)
    np.testing.assert_allclose(split.x_test[:, 2], 1)
    shift = 1 / x[:, 0].std()
    np.testing.assert_allclose(split.x_test[:, 0], split.x_train[:4, 0] + shift)
    np.testing.assert_allclose(split.y_test, split.y_train[:4])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>", "is a web page"),
        (b"not gzip", "is not a gzip file"),
        (b"", "is not a gzip file"),
        (gzip.compress(bytes(1000), mtime=0)[:-12], "is a broken or truncated gzip file"),
        (gzip.compress(bytes(1000), mtime=0), "is not an IDX file .* begins with 00 00 00 00"),
        (gzip.compress(b"", mtime=0), "begins with nothing"),
        (gzip.compress(bytes([0, 0, 8, 3]), mtime=0), r"says that its shape is \(0, 0, 0\)"),
        (
            gzip.compress(
                bytes([0, 0, 8, 3]) + struct.pack(">3I", 60000, 28, 28) + bytes(9), mtime=0
            ),
            "has 25 bytes",
        ),
    ],
)
def test_damaged_mnist_files_are_one_sentence(places, content, message):
    put(places / "data/mnist/train-images-idx3-ubyte.gz", content)
    with pytest.raises(InputError, match=message):
        datasets.mnist()


def test_cifar10_takes_a_known_subset_while_it_holds_the_rows(places):
    put(places / "data/cifar10/data_batch_1.bin.gz", gzip.compress(records(5).tobytes(), mtime=0))
    put(places / "data/cifar10/test_batch.bin", records(2, label=9).tobytes())
    list_sums(places / "data")
    split = datasets.cifar10(4, 2)
    assert split.x_train.shape == (4, 32, 32, 3)
    assert split.y_test.tolist() == [9, 9]
    # Red comes first in the file, each colour row by row.
    planes = records(1)[0, 1:].reshape(3, 32, 32)
    np.testing.assert_array_equal(split.x_train[0, 5, 7], planes[:, 5, 7])
    with pytest.raises(InputError, match="first 2 of 10000 images, but 3 were asked for"):
        datasets.cifar10(4, 3)
    with pytest.raises(InputError, match="num_test must be from 1 to 10000"):
        datasets.cifar10(4, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes(3074), "has 3074 bytes, which is not"),
        (b"", "has 0 bytes, which is not"),
        (records(2, label=10).tobytes(), "holds the label 10"),
        (records(2).tobytes(), "is not the original cifar10/data_batch_1.bin"),
    ],
)
def test_damaged_cifar10_files_are_one_sentence(places, content, message):
    put(places / "data/cifar10/data_batch_1.bin", content)
    with pytest.raises(InputError, match=message):
        datasets.cifar10(1, 1)


@pytest.mark.parametrize(
    ("load", "name"),
    [
        (lambda: datasets.mnist(), "mnist/train-images-idx3-ubyte"),
        (lambda: datasets.cifar10(1, 1), "cifar10/data_batch_1.bin"),
        (lambda: datasets.uci("yacht", 0), "uci/yacht/data.txt"),
    ],
)
def test_missing_and_offline_names_the_file_and_the_places(places, monkeypatch, load, name):
    with pytest.raises(fetch.MissingDataError) as caught:
        load()
    for words in (name, f"$JAXBNN_DATA ({places}/data)", f"{places}/cache/jaxbnn", "file://"):
        assert words in str(caught.value)
    monkeypatch.delenv("JAXBNN_DATA")
    with pytest.raises(fetch.MissingDataError, match=r"\$JAXBNN_DATA \(not set\)"):
        load()
    monkeypatch.setenv("JAXBNN_DATA", "/nowhere/at/all")
    with pytest.raises(InputError, match="which is not a directory"):
        load()


def test_a_download_is_checked_then_kept_in_the_cache(places, monkeypatch):
    small_uci(places / "web/uci/yacht/data")
    known = {}
    for path in (places / "web/uci/yacht/data").iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        known[f"uci/yacht/{path.name}"] = [f"sha256:{digest}"]
    monkeypatch.setattr(fetch, "_known_digests", lambda: known)
    first = datasets.uci("yacht", 0)
    shutil.rmtree(places / "web")
    np.testing.assert_array_equal(datasets.uci("yacht", 0).x_train, first.x_train)
    kept = {path.name for path in (places / "cache/jaxbnn/uci/yacht").iterdir()}
    assert kept == {
        "data.txt",
        "index_features.txt",
        "index_target.txt",
        "n_splits.txt",
        "index_train_0.txt",
        "index_test_0.txt",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html>", "is a web page"),
        (gzip.compress(bytes(100), mtime=0)[:-9], "broken or truncated"),
        (gzip.compress(bytes(100), mtime=0), "is not the original mnist/train-images"),
    ],
)
def test_a_bad_download_is_refused_and_not_kept(places, content, message):
    put(places / "web/mnist/train-images-idx3-ubyte.gz", content)
    with pytest.raises(InputError, match=message):
        datasets.mnist()
    assert not list((places / "cache").rglob("*.gz"))


def test_the_cifar10_archive_is_unpacked_into_the_cache(places, monkeypatch):
    folder = places / "unpacked" / "cifar-10-batches-bin"
    known = {}
    for batch in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        content = records(2, label=int(batch[-1]) if batch[-1].isdigit() else 7).tobytes()
        put(folder / f"{batch}.bin", content)
        known[f"cifar10/{batch}.bin"] = [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    archive = places / "web/cifar10/cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, folder.name)
    with pytest.raises(InputError, match="is not the archive it used to be"):
        datasets.cifar10(2, 1)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(fetch, "CIFAR10_ARCHIVE_SHA256", digest)
    monkeypatch.setattr(fetch, "_known_digests", lambda: known)
    split = datasets.cifar10(2, 1)
    assert (split.y_train.tolist(), split.y_test.tolist()) == ([1, 1], [7])
    archive.write_bytes(b"<html>")
    datasets.cifar10(2, 1)


@pytest.mark.long
def test_the_original_mnist(original):
    split = original(datasets.mnist)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(split.y_train).tolist() == counts
    assert split.x_test.shape == (10_000, 28, 28)
    assert split.x_train.mean() / 255 == pytest.approx(0.13066, abs=1e-5)


def test_the_original_cifar10(original):
    split = original(datasets.cifar10, 256, 128)
    assert split.x_train.shape == (256, 32, 32, 3)
    assert split.x_test.shape == (128, 32, 32, 3)
    # The first training image is a frog, the first test image a cat.
    assert (split.y_train[0], split.y_test[0]) == (6, 3)


def test_originals_are_known_without_their_list_of_sums(places, original, monkeypatch):
    original(datasets.uci, "yacht", 0)
    original(datasets.cifar10, 1, 1)
    root = Path(fetch.os.environ["JAXBNN_DATA"])
    shutil.copytree(root / "uci/yacht", places / "data/uci/yacht")
    put(
        places / "data/cifar10/data_batch_1.bin",
        gzip.decompress((root / "cifar10/data_batch_1.bin.gz").read_bytes()),
    )
    shutil.copy(root / "cifar10/test_batch.bin.gz", places / "data/cifar10")
    monkeypatch.setenv("JAXBNN_DATA", str(places / "data"))
    assert len(datasets.uci_splits("yacht")) == 20
    assert len(datasets.cifar10(10, 1000).y_test) == 1000


@pytest.mark.parametrize(
    ("name", "rows", "inputs"), [("airfoil", 1503, 5), ("bikesharing", 17379, 12)]
)
def test_the_original_tables(original, places, monkeypatch, name, rows, inputs):
    split = original(datasets.tabular, name)
    assert split.x_train.shape == (rows - -(-rows // 5), inputs)
    assert split.x_test.shape == (-(-rows // 5), inputs)
    # Known without their list of sums, too.
    root = Path(fetch.os.environ["JAXBNN_DATA"])
    shutil.copytree(root / "tabular", places / "data/tabular")
    monkeypatch.setenv("JAXBNN_DATA", str(places / "data"))
    np.testing.assert_array_equal(datasets.tabular(name).y_test, split.y_test)


@pytest.mark.parametrize(
    ("name", "rows", "features", "splits"),
    [
        ("bostonHousing", 506, 13, 20),
        ("concrete", 1030, 8, 20),
        ("energy", 768, 8, 20),
        ("kin8nm", 8192, 8, 20),
        ("naval-propulsion-plant", 11934, 16, 20),
        ("power-plant", 9568, 4, 20),
        ("protein-tertiary-structure", 45730, 9, 5),
        ("wine-quality-red", 1599, 11, 20),
        ("yacht", 308, 6, 20),
    ],
)
def test_the_original_uci_sets(original, name, rows, features, splits):
    split = original(datasets.uci, name, splits - 1)
    assert split.x_train.shape == (round(0.9 * rows), features)
    assert len(split.y_train) + len(split.y_test) == rows
    with pytest.raises(InputError, match="was asked for"):
        datasets.uci(name, splits)
