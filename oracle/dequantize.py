"""Writes the F32 copy of a quantized GGUF file: same metadata, every tensor dequantized.

    python dequantize.py SOURCE TARGET
"""

import sys

import gguf
import numpy

ALL_F32 = 0  # value of general.file_type


def copy_metadata(reader, writer):
    skipped = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type"}
    for name, field in reader.fields.items():
        if name in skipped:
            continue
        value_type = field.types[0]
        item_type = field.types[-1] if value_type == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), value_type, sub_type=item_type)


def dequantize_file(source, target):
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    writer.add_file_type(ALL_F32)
    copy_metadata(reader, writer)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        writer.add_tensor(tensor.name, values.reshape(tuple(reversed(tensor.shape.tolist()))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    dequantize_file(sys.argv[1], sys.argv[2])
